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
