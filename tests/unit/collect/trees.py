"""Trees of /proc and /sys for the tests of collectors.

``HOST`` was recorded on a virtual machine with Debian 12, Linux 6.18 and control groups of version 1, and shortened; a
partition, a RAID and an NFS mount were added by hand. ``V1`` has the layout that Slurm 22.05 makes there with two
slurmd on one machine, with values read from such groups. ``V2`` was written by hand after the kernel's
admin-guide/cgroup-v2.rst, in the layouts of Slurm and of Kubernetes' systemd driver.
"""

from pathlib import Path

V1_STEP = """\
9:name=systemd:/
8:pids:/
6:freezer:/slurm_n1/uid_65534/job_21/step_0
5:devices:/slurm_n1/uid_65534/job_21/step_0/task_0
4:memory:/slurm_n1/uid_65534/job_21/step_0/task_0
3:cpuset:/slurm_n1/uid_65534/job_21/step_0
2:cpuacct:/slurm_n1/uid_65534/job_21/step_0/task_2
1:cpu:/
0::/
"""
"""Groups of a process in task 2 of step 0 of Slurm's job 21, as /proc/PID/cgroup names them in version 1."""
HOST = {
    "proc/stat": """\
cpu  294716 12 27407 616237 3585 7 1140 44875 0 0
cpu0 132714 12 12336 323797 970 7 488 24045 0 0
cpu1 162002 0 15071 292439 2615 0 651 20830 0 0
intr 2338867 0 0
ctxt 4708722
btime 1795222148
processes 26254
procs_running 14
procs_blocked 1
""",
    "proc/meminfo": """\
MemTotal:       24684096 kB
MemFree:        20368172 kB
MemAvailable:   22450440 kB
Buffers:           52108 kB
Cached:          2105568 kB
SwapCached:            0 kB
SwapTotal:             0 kB
SwapFree:              0 kB
Dirty:              3120 kB
Slab:             114204 kB
HugePages_Total:       0
""",
    "proc/vmstat": "nr_free_pages 1303422\npgmajfault 5123\npswpin 7\npswpout 11\noom_kill 3\n",
    "proc/loadavg": "12.79 9.70 5.82 11/515 26259\n",
    "proc/pressure/cpu": "some avg10=82.27 avg60=79.80 avg300=69.34 total=999541473\nfull avg10=0.00 total=0\n",
    "proc/pressure/io": "some avg10=1.62 avg60=4.24 avg300=3.84 total=68704450\nfull avg10=0.11 total=22987596\n",
    "proc/diskstats": """\
   7       0 loop0 5 0 10 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 304801 26751 19758642 303932 307053 125384 26224800 315759 0 111020 796987 85005 8 71779208 162274
 254       1 vda1 304801 26751 19758642 303932 307053 125384 26224800 315759 0 111020 796987 85005 8 71779208 162274
   9       0 md0 1 0 8 0 1 0 8 0 0 0 0 0 0 0 0 0 0
 253       0 zram0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
""",
    "sys/block/vda/device/model": "",
    "sys/block/md0/size": "8\n",
    "sys/block/loop0/size": "10\n",
    "proc/net/dev": """\
Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 2103510380  530236    0    0    0     0          0         0 2103510380  530236    0    0    0     0    0     0
  br0:      70       1    0    0    0     0          0         0       70       1    0    0    0     0       0       0
  eth0: 1162244620  55483    1    2    0     0          0         0  2978760   28305    3    4    0     0       0     0
""",
    "proc/net/snmp": """\
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs \
RetransSegs InErrs OutRsts InCsumErrors
Tcp: 1 200 120000 -1 1290 811 52 22 16 531442 529301 37 0 102 0
Udp: InDatagrams NoPorts InErrors OutDatagrams
Udp: 14 0 0 14
""",
    "sys/class/net/eth0/device/vendor": "",
    "sys/class/net/eth0/speed": "25000\n",
    "sys/class/net/br0/speed": "10000\n",
    "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "1000\n",
    "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "250\n",
    "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
    "sys/class/infiniband/mlx5_1/ports/1/rate": "10 Gb/sec (4X SDR)\n",
    "sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data": "0\n",
    "sys/class/infiniband/mlx5_1/ports/1/counters/port_xmit_data": "0\n",
    "sys/class/net/br0/bridge/root_id": "",
    "proc/self/mountinfo": """\
22 27 0:21 / /proc rw,relatime - proc proc rw
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684096k
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
40 27 254:0 /srv /srv/again rw,relatime - ext4 /dev/vda rw
41 27 0:50 / /mnt/data\\040sets rw,relatime shared:5 - nfs4 server:/export rw,vers=4.2
42 27 0:51 / /run/user/0 rw,relatime - tmpfs tmpfs rw
43 27 0:52 / /var/lib/docker/overlay2/abc/merged rw - overlay overlay rw
""",
}

_SLURM_STEP = "slurm_n1/uid_65534/job_21/step_0"
_UNLIMITED = "9223372036854771712\n"

V1 = {
    "proc/self/mountinfo": """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
37 31 0:34 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
38 31 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
""",
    f"sys/fs/cgroup/cpuacct/{_SLURM_STEP}/task_2/cpuacct.usage": "12500000000\n",
    f"sys/fs/cgroup/memory/{_SLURM_STEP}/task_0/memory.usage_in_bytes": "104857600\n",
    f"sys/fs/cgroup/memory/{_SLURM_STEP}/task_0/memory.limit_in_bytes": _UNLIMITED,
    f"sys/fs/cgroup/memory/{_SLURM_STEP}/task_0/memory.stat": (
        "cache 40960000\nrss 60000000\ninactive_file 100\nhierarchical_memory_limit 314572800\n"
        "total_cache 40960000\ntotal_rss 60000000\ntotal_inactive_file 20971520\n"
    ),
    f"sys/fs/cgroup/memory/{_SLURM_STEP}/task_0/memory.failcnt": "6\n",
    f"sys/fs/cgroup/memory/{_SLURM_STEP}/task_0/memory.oom_control": ("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
    f"sys/fs/cgroup/memory/{_SLURM_STEP}/memory.limit_in_bytes": "314572800\n",
    "sys/fs/cgroup/memory/slurm_n1/uid_65534/job_21/memory.limit_in_bytes": "314572800\n",
    "sys/fs/cgroup/memory/slurm_n1/uid_65534/memory.limit_in_bytes": _UNLIMITED,
    "sys/fs/cgroup/memory/slurm_n1/memory.limit_in_bytes": _UNLIMITED,
    "sys/fs/cgroup/memory/memory.limit_in_bytes": _UNLIMITED,
    f"sys/fs/cgroup/cpuset/{_SLURM_STEP}/cpuset.cpus": "0,2-3\n",
    "sys/fs/cgroup/cpu/batch/cpu.cfs_quota_us": "150000\n",
    "sys/fs/cgroup/cpu/batch/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/batch/inner/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/batch/inner/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/batch/inner/cpu.stat": "nr_periods 40\nnr_throttled 12\nthrottled_time 3500000000\n",
    "sys/fs/cgroup/blkio/batch/inner/blkio.throttle.io_service_bytes_recursive": (
        "254:0 Read 4096\n254:0 Write 8192\n254:0 Total 12288\n7:0 Read 1\nTotal 12289\n"
    ),
    "sys/fs/cgroup/blkio/batch/inner/blkio.throttle.io_serviced_recursive": (
        "254:0 Read 3\n254:0 Write 5\n254:0 Total 8\n7:0 Read 1\nTotal 9\n"
    ),
}

_POD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0001_0002_0003_00000000abcd.slice"
_JOB = "system.slice/n1_slurmstepd.scope/job_1"

V2 = {
    "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
    f"sys/fs/cgroup/{_POD}/cpu.stat": (
        "usage_usec 7250000\nuser_usec 6000000\nsystem_usec 1250000\n"
        "nr_periods 9\nnr_throttled 2\nthrottled_usec 500000\n"
    ),
    f"sys/fs/cgroup/{_POD}/cpu.max": "max 100000\n",
    "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/cpu.max": "250000 100000\n",
    f"sys/fs/cgroup/{_POD}/cpuset.cpus.effective": "0-7\n",
    f"sys/fs/cgroup/{_POD}/memory.current": "500000000\n",
    f"sys/fs/cgroup/{_POD}/memory.max": "max\n",
    "sys/fs/cgroup/kubepods.slice/memory.max": "8000000000\n",
    "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/memory.max": "4000000000\n",
    f"sys/fs/cgroup/{_POD}/memory.stat": "anon 300000000\nfile 200000000\ninactive_file 150000000\n",
    f"sys/fs/cgroup/{_POD}/memory.events": "low 0\nhigh 0\nmax 4\noom 2\noom_kill 2\n",
    f"sys/fs/cgroup/{_POD}/io.stat": (
        "254:0 rbytes=1000 wbytes=2000 rios=1 wios=2 dbytes=0 dios=0\n"
        "253:1 rbytes=900 wbytes=1900 rios=1 wios=2 dbytes=0 dios=0\n259:0\n"
    ),
    "sys/dev/block/254:0/device/model": "",
    f"sys/fs/cgroup/{_POD}/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\n",
    f"sys/fs/cgroup/{_POD}/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=40\nfull total=0\n",
    f"sys/fs/cgroup/{_JOB}/memory.max": "314572800\n",
    f"sys/fs/cgroup/{_JOB}/step_0/user/task_0/memory.max": "max\n",
    f"sys/fs/cgroup/{_JOB}/step_0/user/task_0/memory.current": "1000000\n",
    f"sys/fs/cgroup/{_JOB}/step_0/user/task_0/cpu.stat": "usage_usec 1500000\n",
}


def plant(root: Path, *trees: dict[str, str]) -> Path:
    """Write trees below ``root``, later ones over earlier ones."""
    for tree in trees:
        for name, text in tree.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return root


def end_process(root: Path, pid: int) -> None:
    """End a process of the tree: its files disappear, and open ones become empty."""
    for path in (root / f"proc/{pid}").iterdir():
        if path.is_file() and not path.is_symlink():
            path.write_bytes(b"")
        path.unlink()


def plant_process(
    root: Path,
    pid: int,
    parent: int = 1,
    *,
    start: int = 1000,
    ticks: int = 100,
    waited: int = 0,
    resident: int = 256,
    threads: int = 1,
    state: str = "S",
    groups: str = "0::/\n",
    io: tuple[int, int] | None = (0, 0),
    uid: int = 0,
    **variables: str,
) -> None:
    """Plant a process: ``ticks`` of CPU time, ``waited`` of children it waited for, ``resident`` pages."""
    fields = ["0"] * 50
    fields[0], fields[1], fields[11], fields[17], fields[19] = state, str(parent), str(ticks), str(threads), str(start)
    fields[13], fields[21] = str(waited), str(resident)
    files = {
        "stat": f"{pid} (a (strange) name) " + " ".join(fields) + "\n",
        "cgroup": groups,
        "environ": "".join(f"{name}={value}\0" for name, value in {"SECRET": "x", **variables}.items()),
        "status": f"Name:\tx\nUid:\t{uid}\t0\t0\t0\nCpus_allowed_list:\t0-1\n",
    }
    if io is not None:
        files["io"] = f"rchar: 9\nwchar: 9\nread_bytes: {io[0]}\nwrite_bytes: {io[1]}\ncancelled_write_bytes: 0\n"
    plant(root, {f"proc/{pid}/{name}": text for name, text in files.items()})
