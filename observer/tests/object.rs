//! The kernel side's object: what both sides call the same must be there under that name. No root needed.

use std::collections::HashSet;

use observer::probe::OBJECT;
use observer_common::names;

fn object() -> aya_obj::Object {
    match aya_obj::Object::parse(OBJECT) {
        Ok(object) => object,
        Err(error) => unreachable!("the object that the build made does not parse: {error}"),
    }
}

#[test]
fn every_program_of_the_table_is_in_the_object_and_no_other() {
    let object = object();
    let found: HashSet<&str> = object.programs.keys().map(String::as_str).collect();
    let named: HashSet<&str> = names::PROGRAMS.into_iter().collect();
    assert_eq!(found, named);
}

#[test]
fn every_map_is_in_the_object() {
    let object = object();
    for name in [
        names::CPUS,
        names::TASKS,
        names::SLOTS,
        names::FREE,
        names::ENDED,
        names::AFTER_SWITCH,
        names::TARGETS,
        names::GLOB,
        names::CGROUP,
    ] {
        assert!(object.maps.contains_key(name), "{name}");
    }
}

#[test]
fn the_licence_lets_it_call_the_tracing_helpers() {
    assert_eq!(object().license.to_str(), Ok("Dual MIT/GPL"));
}

#[test]
fn the_object_has_type_information() {
    assert!(object().btf.is_some(), "without BTF, the kernel cannot show names");
}

/// `call` of a function of ours (`BPF_PSEUDO_CALL`), and of the helper `bpf_tail_call` (include/uapi/linux/bpf.h).
const CALL: u8 = 0x85;
const TO_FUNCTION: u8 = 1;
const TAIL_CALL: i32 = 12;

/// arm64 before 6.0 loads no program that does both (`check_map_func_compatibility`, kernel/bpf/verifier.c).
#[test]
fn a_program_that_goes_on_in_another_one_calls_no_function() {
    let object = object();
    let mut going_on = Vec::new();
    for (name, program) in &object.programs {
        let function = &object.functions[&program.function_key()];
        let calls = || function.instructions.iter().filter(|one| one.code == CALL);
        if calls().any(|call| call.src_reg() == 0 && call.imm == TAIL_CALL) {
            assert!(calls().all(|call| call.src_reg() != TO_FUNCTION), "{name} calls a function");
            going_on.push(name.as_str());
        }
    }
    assert_eq!(going_on, ["sched_switch"]);
}
