#!/bin/bash
# In the virtual machine of tests/support/machine.py, where control groups are of version 2 alone: a Slurm of two slurmd without
# systemd, and a job of three tasks. What the scheduler says is /vmout/job, the machine is /vmout/NAME.json.
# slurm_v2.sh NAME PYTHON [ROOT]: ROOT holds another Debian with another Slurm.
set -eu
NAME=$1 PYTHON=$2 ROOT=${3:-}
slurm() { ${ROOT:+chroot "$ROOT"} "$@"; }

hostname vm
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
[ -z "$ROOT" ] || umount /tmp
for place in ${ROOT:+proc sys dev run vmout}; do
  mkdir -p "$ROOT/$place"
  mount --rbind "/$place" "$ROOT/$place"
done
[ -z "$ROOT" ] || cp /etc/hosts "$ROOT/etc/hosts"

TOP=/sys/fs/cgroup
echo "+cpu +cpuset +memory +pids +io" >$TOP/cgroup.subtree_control
mkdir $TOP/system.slice
echo "+cpu +cpuset +memory +pids +io" >$TOP/system.slice/cgroup.subtree_control

D=/run/s
mkdir -p $D/{etc,state,spool,log,run,munge}
head -c 128 /dev/urandom >$D/munge/munge.key
chmod 400 $D/munge/munge.key
chmod 711 $D/munge
slurm chown -R munge:munge $D/munge
slurm setpriv --reuid=munge --regid=munge --clear-groups munged --key-file=$D/munge/munge.key \
  --socket=$D/munge/munge.socket --pid-file=$D/munge/p --log-file=$D/munge/l --seed-file=$D/munge/s
printf 'CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainCores=yes\nConstrainRAMSpace=yes\n' >$D/etc/cgroup.conf
cat >$D/etc/slurm.conf <<C
ClusterName=t
SlurmctldHost=vm(127.0.0.1)
SlurmUser=root
AuthInfo=socket=$D/munge/munge.socket
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=$D/run/c.pid
SlurmdPidFile=$D/run/d.%n.pid
SlurmctldLogFile=$D/log/c
SlurmdLogFile=$D/log/d.%n
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0
MpiDefault=none
ReturnToService=2
NodeName=n[1-2] NodeHostname=vm NodeAddr=127.0.0.1 Port=[26821-26822] CPUs=2 RealMemory=400 State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES DefMemPerCPU=50 State=UP
C
export SLURM_CONF=$D/etc/slurm.conf
slurm slurmctld
slurm slurmd -N n1
slurm slurmd -N n2
until [ "$(slurm sinfo -h -t idle -o %D)" = 2 ]; do sleep .3; done
cd /run
slurm sbatch -D /run -J wide -N2 -n3 --mem=150 -o /run/out --wrap \
  "srun python3 -c 'import time; x = bytearray(30 << 20); time.sleep(900)'"
tasks() { grep -l 'step_0/.*task_' /proc/[0-9]*/cgroup 2>/dev/null | wc -l; }
resident() { awk '$24 > 7680 && $2 ~ /python3/' /proc/[0-9]*/stat 2>/dev/null | wc -l; }
until [ "$(tasks)" -ge 3 ] && [ "$(resident)" -ge 3 ]; do sleep .3; done
slurm sinfo --version >/vmout/version
slurm squeue --json >/vmout/squeue.json
slurm scontrol --all show job --details --oneliner >/vmout/job
cd "$OLDPWD"
"$PYTHON" -m tests.unit.collect.machines.record running "$NAME" slurmstepd.scope ""
cp "tests/unit/collect/machines/$NAME.json" /vmout/
