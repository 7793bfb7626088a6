mod outside;

use super::{
    testing::{BOOL, Builder, FLAG, SIGNED},
    *,
};

fn plain(offset: u64, size: u64) -> Option<Member> {
    Some(Member { offset, size, bitfield: None })
}

fn bits(offset: u64, size: u64, shift: u32, width: u32) -> Option<Member> {
    let shift =
        if cfg!(target_endian = "little") { shift } else { size as u32 * 8 - shift - width };
    Some(Member { offset, size, bitfield: Some(Bitfield { shift, width }) })
}

/// A bit of everything: what the property tests damage.
fn sample() -> Builder {
    let mut b = Builder::new();
    let u32_ = b.int("unsigned int", 4, 0);
    let int = b.int("int", 4, SIGNED);
    let long = b.int("long unsigned int", 8, 0);
    let bool_ = b.int("_Bool", 1, BOOL);
    let u64_ = b.typedef("u64", long);
    let volatile = b.reference(9, "", u32_);
    let tag = b.reference(18, "user", volatile);
    let inner = b.union("", 8, &[("donor", u64_, 0), ("curr", u64_, 0)]);
    let entity =
        b.strukt("sched_entity", 24, &[("load", u64_, 0), ("sum_exec_runtime", u64_, 128)]);
    let comm = b.array(int, 4);
    let task = b.composite(
        4 << 24 | FLAG,
        "task_struct",
        80,
        &[
            ("__state", tag, 0),
            ("flag_a", u32_, 32 | 1 << 24),
            ("flag_b", u32_, 33 | 3 << 24),
            ("", inner, 64),
            ("se", entity, 128),
            ("comm", comm, 320),
        ],
    );
    let pointer = b.pointer(task);
    b.tracepoint(
        "sched_switch",
        &[("preempt", bool_), ("prev", pointer), ("next", pointer), ("prev_state", u32_)],
    );
    b.func("wakeup_preempt", &[("p", pointer), ("flags", int)]);
    b.enumeration("bpf_func_id", 0, &[("BPF_FUNC_unspec", 0), ("BPF_FUNC_task_pt_regs", 175)]);
    b.enumeration64("big", &[("BIG_ONE", 1 << 40)]);
    b.record("cpu_info", 14 << 24, int, &[1]);
    b.record(".data..percpu", 15 << 24 | 1, 4, &[int, 0, 4]);
    b.record("double", 16 << 24, 8, &[]);
    b.record("tag", 17 << 24, task, &[u32::MAX]);
    b.record("later", 7 << 24, 0, &[]);
    b
}

#[test]
fn finds_members_through_anonymous_and_embedded_structs() {
    let btf = sample().build();
    assert_eq!(btf.member("task_struct", "__state"), plain(0, 4));
    assert_eq!(btf.member("task_struct", "curr"), plain(8, 8));
    assert_eq!(btf.member("task_struct", "se.sum_exec_runtime"), plain(32, 8));
    assert_eq!(btf.member("task_struct", "se"), plain(16, 24));
    assert_eq!(btf.member("task_struct", "comm"), plain(40, 16));
    assert_eq!(btf.member("task_struct", "nothing"), None);
    assert_eq!(btf.member("task_struct", "se.nothing"), None);
    assert_eq!(btf.member("task_struct", "__state.x"), None);
    assert_eq!(btf.member("task_struct", ""), None);
    assert_eq!(btf.member("nothing", "curr"), None);
    assert_eq!(btf.struct_size("task_struct"), Some(80));
    assert_eq!(btf.struct_size("nothing"), None);
}

#[test]
fn finds_members_two_anonymous_levels_down() {
    let mut b = Builder::new();
    let int = b.int("int", 4, SIGNED);
    let low = b.strukt("", 8, &[("a", int, 0), ("b", int, 32)]);
    let middle = b.union("", 8, &[("whole", int, 0), ("", low, 0)]);
    let konst = b.reference(10, "", middle);
    b.strukt("outer", 16, &[("x", int, 0), ("", konst, 64)]);
    let btf = b.build();
    assert_eq!(btf.member("outer", "b"), plain(12, 4));
    assert_eq!(btf.member("outer", "whole"), plain(8, 4));
}

#[test]
fn reads_bitfields_of_structs_with_the_kind_flag() {
    let btf = sample().build();
    assert_eq!(btf.member("task_struct", "flag_a"), bits(4, 4, 0, 1));
    assert_eq!(btf.member("task_struct", "flag_b"), bits(4, 4, 1, 3));
    assert_eq!(btf.member("task_struct", "flag_b.x"), None);
    let field = btf.member("task_struct", "flag_b").and_then(|member| member.bitfield);
    let loaded = if cfg!(target_endian = "little") { 0b1010 } else { 0b101 << 28 };
    assert_eq!(field.map(|field| field.extract(loaded)), Some(0b101));
    assert_eq!(Bitfield { shift: 0, width: 64 }.extract(u64::MAX), u64::MAX);
}

#[test]
fn reads_bitfields_of_structs_without_the_kind_flag() {
    let mut b = Builder::new();
    let narrow = b.record("unsigned int", 1 << 24, 4, &[3]);
    let skipped = b.record("unsigned int", 1 << 24, 4, &[2 << 16 | 5]);
    let whole = b.int("unsigned int", 4, 0);
    b.strukt("old", 12, &[("a", narrow, 32), ("b", skipped, 35), ("c", whole, 64)]);
    let btf = b.build();
    assert_eq!(btf.member("old", "a"), bits(4, 4, 0, 3));
    assert_eq!(btf.member("old", "b"), bits(4, 4, 5, 5));
    assert_eq!(btf.member("old", "c"), plain(8, 4));
}

#[test]
fn widens_the_load_of_a_bitfield_that_straddles() {
    let mut b = Builder::new();
    let byte = b.int("unsigned char", 1, 0);
    let long = b.int("long", 8, SIGNED);
    let info = 4 << 24 | FLAG;
    b.composite(info, "packed", 9, &[("a", byte, 5 | 6 << 24), ("b", long, 60 | 12 << 24)]);
    let btf = b.build();
    assert_eq!(btf.member("packed", "a"), bits(0, 2, 5, 6));
    assert_eq!(btf.member("packed", "b"), bits(7, 2, 4, 12));
}

#[test]
fn follows_typedefs_and_gives_up_on_a_circle() {
    let mut b = Builder::new();
    let int = b.int("int", 4, SIGNED);
    let mut id = int;
    for name in ["a_t", "b_t", "c_t"] {
        id = b.typedef(name, id);
        id = b.reference(10, "", id);
    }
    let circle = b.next_id();
    b.typedef("x_t", circle + 1);
    b.typedef("y_t", circle);
    b.strukt(
        "s",
        8,
        &[("fine", id, 0), ("endless", circle, 32), ("", circle, 0), ("last", int, 32)],
    );
    let btf = b.build();
    assert_eq!(btf.member("s", "fine"), plain(0, 4));
    assert_eq!(btf.member("s", "endless"), None);
    assert_eq!(btf.member("s", "last"), plain(4, 4));
}

#[test]
fn survives_a_struct_that_contains_itself() {
    let mut b = Builder::new();
    let me = b.next_id();
    let members: Vec<_> = (0..200).map(|_| ("", me, 0)).collect();
    b.strukt("me", 8, &members);
    let array = b.next_id();
    b.record("", 3 << 24, 0, &[array, array, 2]);
    b.strukt("endless", 8, &[("array", array, 0)]);
    let btf = b.build();
    assert_eq!(btf.member("me", "x"), None);
    assert_eq!(btf.member("endless", "array"), None);
}

#[test]
fn an_array_too_large_for_any_machine_has_no_size() {
    let mut b = Builder::new();
    let mut id = b.int("long", 8, SIGNED);
    for _ in 0..3 {
        id = b.array(id, u32::MAX);
    }
    b.strukt("s", 8, &[("huge", id, 0)]);
    assert_eq!(b.build().member("s", "huge"), None);
}

#[test]
fn takes_the_first_of_several_structs_that_has_the_member() {
    let mut b = Builder::new();
    let int = b.int("int", 4, SIGNED);
    b.strukt("rq", 4, &[("tag", int, 0)]);
    b.strukt("rq", 8, &[("x", int, 0), ("clock", int, 32)]);
    b.typedef("rq", int);
    let btf = b.build();
    assert_eq!(btf.member("rq", "clock"), plain(4, 4));
    assert_eq!(btf.struct_size("rq"), Some(4));
    assert!(!btf.has_func("rq"));
}

#[test]
fn reads_enumerators() {
    let mut b = sample();
    b.enumeration("signed", FLAG, &[("MINUS", -2)]);
    b.enumeration("", 0, &[("TRACE_X", 9), ("TOP", -1)]);
    let btf = b.build();
    assert_eq!(btf.enum_value("bpf_func_id", "BPF_FUNC_task_pt_regs"), Some(175));
    assert_eq!(btf.enum_value("bpf_func_id", "BPF_FUNC_task"), None);
    assert_eq!(btf.enum_value("nothing", "BPF_FUNC_task_pt_regs"), None);
    assert_eq!(btf.enumerator("BPF_FUNC_task_pt_regs"), Some(175));
    assert_eq!(btf.enumerator("BIG_ONE"), Some(1 << 40));
    assert_eq!(btf.enumerator("MINUS"), Some(-2));
    assert_eq!(btf.enumerator("TRACE_X"), Some(9));
    assert_eq!(btf.enumerator("TOP"), Some(i64::from(u32::MAX)));
    assert_eq!(btf.enumerator("pt_regs"), None);
}

/// `sched_switch` as in 5.10, 6.1 and later, and 5.18.
#[test]
fn tells_the_three_forms_of_sched_switch_apart() {
    let forms: [(&[&str], [usize; 2]); 3] = [
        (&["bool", "task", "task"], [1, 2]),
        (&["bool", "task", "task", "state"], [1, 2]),
        (&["bool", "state", "task", "task"], [2, 3]),
    ];
    for (form, places) in forms {
        let mut b = Builder::new();
        let bool_ = b.int("_Bool", 1, BOOL);
        let state = b.int("unsigned int", 4, 0);
        let task = b.strukt("task_struct", 8, &[]);
        let konst = b.reference(10, "", task);
        let pointer = b.pointer(konst);
        let args: Vec<_> = form
            .iter()
            .map(|arg| match *arg {
                "bool" => ("", bool_),
                "state" => ("", state),
                _ => ("", pointer),
            })
            .collect();
        b.tracepoint("sched_switch", &args);
        let btf = b.build();
        let args = btf.tracepoint_args("sched_switch").expect("it is there");
        assert_eq!(args.len(), form.len());
        assert_eq!(args[0].ty, ArgType::Bool);
        for (nth, place) in places.iter().enumerate() {
            assert_eq!(nth_pointer_to(&args, "task_struct", nth), Some(*place), "{form:?}");
        }
        assert_eq!(nth_pointer_to(&args, "task_struct", 2), None);
        let state = args.iter().position(|arg| arg.ty == ArgType::Int { size: 4, signed: false });
        assert_eq!(state, form.iter().position(|arg| *arg == "state"));
    }
}

#[test]
fn describes_the_other_types_of_arguments() {
    let mut b = Builder::new();
    let long = b.int("long int", 8, SIGNED);
    let long_t = b.typedef("time64_t", long);
    let later = b.record("later", 7 << 24, 0, &[]);
    let to_later = b.pointer(later);
    let to_long = b.pointer(long);
    let state = b.enumeration("state", 0, &[("A", 0)]);
    let args =
        [("when", long_t), ("l", to_later), ("p", to_long), ("s", state), ("v", 0), ("x", 99)];
    b.tracepoint("t", &args);
    b.func("f", &args);
    let btf = b.build();
    let wanted = [
        Arg { name: "when", ty: ArgType::Int { size: 8, signed: true } },
        Arg { name: "l", ty: ArgType::PointerTo("later") },
        Arg { name: "p", ty: ArgType::Pointer },
        Arg { name: "s", ty: ArgType::Other },
        Arg { name: "v", ty: ArgType::Other },
        Arg { name: "x", ty: ArgType::Other },
    ];
    assert_eq!(btf.tracepoint_args("t").as_deref(), Some(&wanted[..]));
    assert_eq!(btf.func_args("f").as_deref(), Some(&wanted[..]));
    assert_eq!(btf.func_args("g"), None);
}

#[test]
fn a_typedef_that_is_no_tracepoint_is_none() {
    let mut b = Builder::new();
    let int = b.int("int", 4, SIGNED);
    b.typedef("btf_trace_number", int);
    let no_data = b.proto(&[("x", int)]);
    let pointer = b.pointer(no_data);
    b.typedef("btf_trace_no_data", pointer);
    let empty = b.proto(&[]);
    let pointer = b.pointer(empty);
    b.typedef("btf_trace_empty", pointer);
    b.tracepoint("bare", &[]);
    let btf = b.build();
    for name in ["number", "no_data", "empty", "absent", ""] {
        assert_eq!(btf.tracepoint_args(name), None, "{name}");
        assert!(!btf.has_tracepoint(name));
    }
    assert_eq!(btf.tracepoint_args("bare"), Some(vec![]));
}

#[test]
fn skips_newer_kinds_by_the_layout_section() {
    let mut b = sample();
    // LOC_PARAM with two values: one word, then one per element.
    b.record("", 20 << 24 | 2, 8, &[2, 7, 7]);
    b.func("behind", &[]);
    let unknown = Btf::parse(b.bytes());
    assert!(matches!(unknown, Err(BtfError::UnknownKind { kind: 20, .. })), "no layout section");
    b.layout(20, 4, 4);
    let btf = b.build();
    assert!(btf.has_func("behind"));
    assert_eq!(btf.member("task_struct", "se.sum_exec_runtime"), plain(32, 8));
}

#[test]
fn reads_a_struct_with_more_members_than_sixteen_bits_count() {
    let mut b = Builder::new();
    let int = b.int("int", 4, SIGNED);
    let mut members = vec![("", int, 0); 0x1_0001];
    members.push(("last", int, 64));
    b.strukt("wide", 16, &members);
    assert_eq!(b.build().member("wide", "last"), plain(8, 4));
}

#[test]
fn refuses_what_is_no_btf() {
    let good = sample().bytes();
    let mut swapped = good.clone();
    swapped.swap(0, 1);
    assert!(matches!(Btf::parse(swapped), Err(BtfError::OtherEndian)));
    let mut version = good.clone();
    version[2] = 2;
    assert!(matches!(Btf::parse(version), Err(BtfError::Version(2))));
    let mut magic = good.clone();
    magic[0] ^= 0x10;
    assert!(matches!(Btf::parse(magic), Err(BtfError::Malformed(_))));
    let mut kind = good.clone();
    // The kind byte of the first type's info.
    let at = if cfg!(target_endian = "little") { 24 + 7 } else { 24 + 4 };
    kind[at] = 0;
    assert!(matches!(Btf::parse(kind), Err(BtfError::UnknownKind { id: 1, kind: 0 })));
    for length in 0..good.len() {
        assert!(Btf::parse(good[..length].to_vec()).is_err(), "cut to {length} bytes");
    }
    assert!(Btf::parse(good).is_ok());
}
