//! What comes from outside: the running kernel's BTF, and bytes that are none.

use proptest::prelude::*;

use super::*;

/// Asks everything once; the answers do not matter, only that there are some.
fn ask_everything(btf: &Btf) {
    for strukt in ["task_struct", "sched_entity", ""] {
        for path in
            ["__state", "flag_b", "curr", "se.sum_exec_runtime", "se.x.y", "comm", "", ".", "a."]
        {
            let _ = btf.member(strukt, path);
        }
        let _ = (btf.struct_size(strukt), btf.has_struct(strukt));
    }
    let _ = (btf.has_func("wakeup_preempt"), btf.func_args("wakeup_preempt"));
    let _ = (btf.tracepoint_args("sched_switch"), btf.has_tracepoint("sched_switch"));
    let _ = (btf.enum_value("bpf_func_id", "BPF_FUNC_task_pt_regs"), btf.enumerator("BIG_ONE"));
}

#[test]
fn a_missing_file_is_explained() {
    let missing = Path::new("/sys/kernel/btf/no-such-module");
    let Err(error) = Btf::from_file(missing) else { panic!("there is no such module") };
    let text = error.to_string();
    assert!(text.contains("/sys/kernel/btf/no-such-module"), "{text}");
    if Path::new("/sys/kernel").is_dir() {
        assert!(text.contains("CONFIG_DEBUG_INFO_BTF"), "{text}");
    } else {
        assert!(error.way_out().contains("mount"), "{text}");
    }
    assert!(!text.contains('\n'));
}

/// The kernel that runs this test, where it has BTF.
#[test]
fn reads_the_running_kernel() {
    if !Path::new(VMLINUX).exists() {
        eprintln!("SKIPPED: {VMLINUX} is not there, so there is no real BTF to read");
        return;
    }
    let btf = Btf::from_sysfs().expect("the kernel's own BTF");
    let size = btf.struct_size("task_struct").expect("task_struct");
    for (path, bytes) in [
        ("pid", 4),
        ("tgid", 4),
        ("comm", 16),
        ("utime", 8),
        ("stime", 8),
        ("start_boottime", 8),
        ("se.sum_exec_runtime", 8),
        ("group_leader", 8),
    ] {
        let member = btf.member("task_struct", path).unwrap_or_else(|| panic!("{path}"));
        assert_eq!((member.size, member.bitfield), (bytes, None), "{path}");
        assert!(member.offset + member.size <= size, "{path}");
    }
    let base = btf.member("task_struct", "se").expect("se").offset;
    let inner = btf.member("sched_entity", "sum_exec_runtime").expect("member").offset;
    let whole = btf.member("task_struct", "se.sum_exec_runtime").expect("member").offset;
    assert_eq!(whole, base + inner);
    // A bitfield in every kernel (`include/linux/sched.h`).
    let bit = btf.member("task_struct", "in_execve").and_then(|member| member.bitfield);
    assert_eq!(bit.map(|bit| bit.width), Some(1));
    assert!(btf.member("rq", "curr").is_some() && btf.member("rq", "clock_task").is_some());
    let args = btf.tracepoint_args("sched_switch").expect("sched_switch");
    let places = [0, 1].map(|nth| nth_pointer_to(&args, "task_struct", nth));
    assert!(places.iter().all(Option::is_some), "{args:?}");
    assert!(btf.has_func("schedule") && !btf.has_func("no_such_function"));
    assert_eq!(btf.enumerator("BPF_FUNC_map_lookup_elem"), Some(1));
    assert_eq!(btf.enum_value("bpf_func_id", "BPF_FUNC_map_lookup_elem"), Some(1));
    // The same bytes serve aya.
    let aya = aya::Btf::parse(btf.bytes(), aya::Endianness::default()).expect("aya reads it too");
    for name in ["schedule", "wakeup_preempt", "ptrace_stop", "no_such_function"] {
        let theirs = aya.id_by_type_name_kind(name, aya_obj::btf::BtfKind::Func).is_ok();
        assert_eq!(btf.has_func(name), theirs, "{name}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(btf) = Btf::parse(bytes) {
            ask_everything(&btf);
        }
    }

    /// A valid header before noise gets further than noise alone.
    #[test]
    fn any_sections_are_survived(
        types in proptest::collection::vec(any::<u32>(), 0..60),
        strings in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0]);
        let (types_len, strings_len) = (types.len() as u32 * 4, strings.len() as u32 + 2);
        for word in [24, 0, types_len, types_len, strings_len] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        for word in types {
            // Few elements and a known kind, or hardly any type would fit.
            bytes.extend_from_slice(&(word & 0x9f00_0003).to_ne_bytes());
        }
        bytes.push(0);
        bytes.extend_from_slice(&strings);
        bytes.push(0);
        if let Ok(btf) = Btf::parse(bytes) {
            ask_everything(&btf);
        }
    }

    #[test]
    fn flipped_bytes_are_survived(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = sample().bytes();
        for (at, mask) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
        }
        if let Ok(btf) = Btf::parse(bytes) {
            ask_everything(&btf);
        }
    }
}
