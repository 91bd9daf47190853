# Enumerates what a process can reach beyond its own sandbox: one line `found KIND DETAIL` for each thing, `probed sh` and `probed python`
# at the end of what was gone through to the end. For any POSIX sh (busybox's too), and for Python where PROBE_PYTHON or python3 is one.
#
# Arguments name what is there to be found, so that nothing depends on luck:
#   tcp=HOST:PORT udp=HOST:PORT unix=PATH abstract=NAME   something listens there (udp: and answers)
#   file=PATH                                             a file that must not be readable
#   word=TEXT                                             a text in names of files, in commands and in environments of processes
#   shm=KEY queue=NAME key=DESCRIPTION                    SysV shared memory, a POSIX message queue, a key of the kernel's keyring
#   ns=TYPE:[INODE]                                       a namespace that must not be shared
#   scan=1                                                look at every TCP port of 127.0.0.1 and ::1
#   walk=DIRECTORY                                        look through the files in there (as often as wanted), and not through all there are
# Nothing is changed: files are opened and never written to, system calls get arguments that can have no effect.

found() { echo "found $*"; }

# Whoever can append could write.
can_open() { { true >>"$1"; } 2>/dev/null; }

rights() {
    while read -r name value _; do
        case $name in
            CapInh: | CapPrm: | CapEff: | CapBnd: | CapAmb:)
                case $value in *[!0]*) found capability "$name $value" ;; esac
                ;;
            NoNewPrivs:) [ "$value" = 1 ] || found new-privileges "set-uid programs work" ;;
            Seccomp:) [ "$value" = 2 ] || found no-seccomp "mode $value" ;;
            Uid:) [ "$value" != 0 ] || found root "uid 0" ;;
        esac
    done </proc/self/status
}

listed() {
    for place in /root /home /work /srv /mnt /media /var/lib /var/run/secrets /run/secrets /var/spool /boot /etc/ssh /etc/shadow /proc/1/root/root; do
        [ -n "$(ls -A "$place" 2>/dev/null)" ] && [ -r "$place" ] && found host-files "$place"
    done
}

sockets() {
    for place in /var/run/docker.sock /run/docker.sock /run/podman/podman.sock /run/containerd/containerd.sock /run/crio/crio.sock \
        /run/dbus/system_bus_socket /run/systemd/private; do
        [ -S "$place" ] && found engine-socket "$place"
    done
}

kernel_files() {
    for place in /proc/kcore /proc/kmsg /dev/mem /dev/kmsg /dev/port /proc/timer_list /proc/sched_debug; do
        [ -n "$(head -c 1 "$place" 2>/dev/null | wc -c | grep 1)" ] && found kernel-file "$place"
    done
    grep -q '^0*[1-9a-f]' /proc/kallsyms 2>/dev/null && found kernel-file "/proc/kallsyms with addresses"
    dmesg 2>/dev/null | grep -q . && found kernel-log "dmesg"
    for place in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/fs/binfmt_misc/register \
        /sys/kernel/uevent_helper $(find /sys/fs/cgroup -name release_agent 2>/dev/null | head -n 20); do
        [ -e "$place" ] && can_open "$place" && found kernel-write "$place"
    done
    find /proc/sys /sys -type f -perm -200 2>/dev/null | head -n 5000 >"${TMPDIR:-/tmp}/probe.$$"
    many=0
    while read -r place; do
        can_open "$place" && many=$((many + 1)) && last=$place
    done <"${TMPDIR:-/tmp}/probe.$$"
    rm -f "${TMPDIR:-/tmp}/probe.$$"
    [ $many = 0 ] || found kernel-write "$many files under /proc/sys and /sys, such as $last"
}

devices() {
    for place in $(find /dev \( -type b -o -type c \) 2>/dev/null); do
        case ${place#/dev/} in null | zero | full | random | urandom | tty | ptmx | pts/*) continue ;; esac
        if [ -r "$place" ] || [ -w "$place" ]; then found device "$place"; fi
    done | head -n 20
    mknod "${TMPDIR:-/tmp}/probe-device.$$" b 7 0 2>/dev/null && found device "made by mknod"
    rm -f "${TMPDIR:-/tmp}/probe-device.$$"
    { true </dev/tty; } 2>/dev/null && found terminal "/dev/tty"
}

mounts() {
    while read -r _ place kind options _; do
        [ "$kind" != tmpfs ] || continue # memory, and in a mount namespace of its own nobody else's
        case $place in
            /box | /tmp | /dev/shm | /dev | /dev/pts | /dev/mqueue | /proc | /proc/*) continue ;;
            /dev/null | /dev/zero | /dev/full | /dev/random | /dev/urandom | /dev/tty) continue ;;
        esac
        case ",$options," in *,rw,*) [ -w "$place" ] && found writable-mount "$place ($kind)" ;; esac
    done </proc/self/mounts
}

processes() {
    [ -n "$patterns" ] || return
    for place in /proc/[0-9]*; do
        for file in cmdline environ; do
            # shellcheck disable=SC2086  one word for each pattern
            tr '\0' ' ' <"$place/$file" | grep -v word= | grep -oF $patterns | sort -u | while read -r word; do
                found process "$place/$file has $word"
            done
        done
    done 2>/dev/null
}

# One walk through all files for both: sockets, and names with a word in them.
files() {
    set -- -type s
    for word in $words; do set -- "$@" -o -name "*$word*"; done
    # shellcheck disable=SC2086  one word for each directory
    find ${walks:-/} \( -path /proc -o -path /sys \) -prune -o \( "$@" \) -print 2>/dev/null | head -n 5000 | while read -r place; do
        [ -S "$place" ] && found socket "$place"
        for word in $words; do
            case ${place##*/} in *"$word"*) found name "$place" ;; esac
        done
    done
}

environment() {
    [ -n "$patterns" ] || return
    # shellcheck disable=SC2086
    env | grep -v word= | grep -oF $patterns | sort -u | while read -r word; do
        found environment "$word"
    done
}

networks() {
    while IFS=: read -r name rest; do
        name=${name##* }
        case $rest in '' | *packets* | *multicast*) ;; *) [ "$name" = lo ] || found interface "$name" ;; esac
    done </proc/net/dev
    while read -r name _; do
        case $name in Iface | lo) ;; *) found route "by $name" ;; esac
    done </proc/net/route
}

targets() {
    for target in "$@"; do
        value=${target#*=}
        case $target in
            file=*) head -c 1 "$value" >/dev/null 2>&1 && found file "$value" ;;
            ns=*) [ "$(readlink "/proc/self/ns/${value%%:*}")" = "$value" ] && found namespace "$value" ;;
            tcp=*)
                if command -v nc >/dev/null 2>&1 && nc -h 2>&1 | grep -qi busybox; then
                    timeout 4 nc -w 2 "${value%:*}" "${value##*:}" </dev/null >/dev/null 2>&1
                    case $? in 0 | 124 | 143) found tcp "$value by nc" ;; esac # ended from outside: it was connected
                fi
                ;;
        esac
    done
}

words= patterns= walks=
for target in "$@"; do
    case $target in
        word=*) words="$words ${target#*=}" patterns="$patterns -e ${target#*=}" ;;
        walk=*) walks="$walks ${target#*=}" ;;
    esac
done
rights
listed
sockets
kernel_files
devices
mounts
processes
files
environment
networks
targets "$@"
echo "probed sh"

PROBE_PYTHON=${PROBE_PYTHON:-$(command -v python3)}
[ -n "$PROBE_PYTHON" ] || exit 0
$PROBE_PYTHON - "$@" <<'PYTHON'
import ctypes, errno, os, platform, socket, sys

TARGETS = [tuple(argument.split("=", 1)) for argument in sys.argv[1:]]
METADATA = [("169.254.169.254", 80), ("169.254.170.2", 80), ("fd00:ec2::254", 80), ("100.100.100.200", 80)]
LIBC = ctypes.CDLL(None, use_errno=True)
COLUMN = {"x86_64": 0, "aarch64": 1}[platform.machine()]
REFUSED = {errno.EPERM, errno.ENOSYS, errno.EACCES}
CLONE_NEW = {"user": 0x10000000, "net": 0x40000000, "mnt": 0x00020000, "pid": 0x20000000, "ipc": 0x08000000, "uts": 0x04000000}


def found(*what):
    print("found", *what, flush=True)


def call(number, *arguments):
    """Return (result, errno); arguments are numbers or bytes."""
    passed = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    ctypes.set_errno(0)
    return LIBC.syscall(ctypes.c_long(number[COLUMN]), *passed), ctypes.get_errno()


NOWHERE = b"/nonexistent-probe"
# name: (x86_64, aarch64), then arguments that change nothing whoever may make the call.
CALLS = {
    "add_key": ((248, 217), b"user", b"probe", b"x", 1, -2),
    "keyctl": ((250, 219), 0, -2, 0),
    "request_key": ((249, 218), b"user", NOWHERE, 0, 0),
    "bpf": ((321, 280), 0, b"\0" * 128, 128),
    "perf_event_open": ((298, 241), 0, 0, -1, -1, 0),
    "userfaultfd": ((323, 282), 1),
    "io_uring_setup": ((425, 425), 1, 0),
    "mount": ((165, 40), b"none", NOWHERE, b"tmpfs", 0, 0),
    "umount2": ((166, 39), NOWHERE, 0),
    "pivot_root": ((155, 41), NOWHERE, NOWHERE),
    "chroot": ((161, 51), NOWHERE),
    "fsopen": ((430, 430), NOWHERE, 0),
    "open_tree": ((428, 428), -1, NOWHERE, 1),
    "move_mount": ((429, 429), -1, NOWHERE, -1, NOWHERE, 0),
    "mount_setattr": ((442, 442), -1, NOWHERE, 0, 0, 0),
    "setns": ((308, 268), -1, 0),
    "init_module": ((175, 105), 0, 0, b""),
    "finit_module": ((313, 273), -1, b"", 0),
    "delete_module": ((176, 106), NOWHERE, 0x800),
    "kexec_load": ((246, 104), 0, 0, 0, 0xFFFF),
    "open_by_handle_at": ((304, 265), -1, 0, 0),
    "quotactl": ((179, 60), -1, NOWHERE, 0, 0),
    "swapon": ((167, 224), NOWHERE, 0),
    "acct": ((163, 89), NOWHERE),
    "syslog": ((103, 116), 10, 0, 0),
    "reboot": ((169, 142), 0, 0, 0, 0),
    "lookup_dcookie": ((212, 18), 0, 0, 0),
    "fanotify_init": ((300, 262), 0xFFFFFFF, 0),
    "move_pages_of_others": ((279, 239), 1, 1, 0, 0, 0, 0xFF),
}
FAMILIES = {"AF_KEY": 15, "AF_PACKET": 17, "AF_RDS": 21, "AF_CAN": 29, "AF_TIPC": 30, "AF_BLUETOOTH": 31, "AF_ALG": 38, "AF_NFC": 39}
FAMILIES |= {"AF_VSOCK": 40, "AF_KCM": 41, "AF_QIPCRTR": 42, "AF_SMC": 43, "AF_XDP": 44}


def in_child(work):
    """Return the exit code of `work` in a process of its own."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(work())
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def cloned(flag):
    """Return 0 if clone3 made a process in a new namespace."""
    arguments = (ctypes.c_uint64 * 8)(flag, 0, 0, 0, 17)
    ctypes.set_errno(0)
    pid = LIBC.syscall(ctypes.c_long(435), arguments, ctypes.c_size_t(64))
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)
    return 0 if pid > 0 else 1


def calls():
    for name, (number, *arguments) in CALLS.items():
        code = in_child(lambda: 1 if (r := call(number, *arguments))[0] < 0 and r[1] in REFUSED else 0)
        if code == 0:
            found("syscall", name)
    for name, flag in CLONE_NEW.items():
        if in_child(lambda: 0 if LIBC.unshare(flag) == 0 else 1) == 0:
            found("new-namespace", name, "by unshare")
        if in_child(lambda: cloned(flag)) == 0:
            found("new-namespace", name, "by clone3")
        arguments = ((56, 220), flag | 17, 0, 0, 0, 0)
        if in_child(lambda: 0 if (pid := call(*arguments)[0]) >= 0 else 1) == 0:
            found("new-namespace", name, "by clone")
    for name, family in FAMILIES.items():
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                socket.socket(family, kind).close()
            except OSError:
                continue
            found("socket-family", name)
            break
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()
        found("socket-family", "raw AF_INET")
    except OSError:
        pass


def connect(family, address, what, value):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.settimeout(2)
            one.connect(address)
    except OSError:
        return
    found(what, value)


def inet(value):
    host, _, port = value.rpartition(":")
    host = host.strip("[]")
    return (socket.AF_INET6 if ":" in host else socket.AF_INET), (host, int(port))


def udp(value):
    family, address = inet(value)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.settimeout(1)
            one.sendto(b"probe", address)
            one.recv(100)
    except OSError:
        return
    found("udp", value)


def key(value):
    searched = call((250, 219), 10, -4, b"user", value.encode(), 0)
    try:
        listed = value in open("/proc/keys").read()
    except OSError:
        listed = False
    if searched[0] >= 0 or listed:
        found("key", value)


def queue(value):
    fd, _ = call((240, 180), value.encode(), 0, 0, 0)
    if fd >= 0:
        found("queue", value)


def scan():
    for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
        for port in range(1, 65536):
            try:
                with socket.socket(family, socket.SOCK_STREAM) as one:
                    one.settimeout(1)
                    one.connect((host, port))
                    if one.getsockname() == one.getpeername():
                        continue  # it happened to call itself
            except OSError as error:
                if error.errno in {errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EAFNOSUPPORT}:
                    break
                continue
            found("tcp", f"{host}:{port}", "by scan")


calls()
for host, port in METADATA:
    connect(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port), "metadata", host)
for what, value in TARGETS:
    if what == "tcp":
        connect(*inet(value), "tcp", value)
    elif what == "udp":
        udp(value)
    elif what == "unix":
        connect(socket.AF_UNIX, value, "unix", value)
    elif what == "abstract":
        connect(socket.AF_UNIX, b"\0" + value.encode(), "abstract", value)
    elif what == "shm":
        if LIBC.shmget(int(value), 0, 0) >= 0:
            found("shm", value)
    elif what == "queue":
        queue(value)
    elif what == "key":
        key(value)
    elif what == "scan":
        scan()
for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
    for target, value in TARGETS:
        if target == "file":
            try:
                open(f"/proc/{pid}/root{value}", "rb").read(1)
                found("file", f"/proc/{pid}/root{value}")
            except OSError:
                pass
print("probed python", flush=True)
PYTHON
