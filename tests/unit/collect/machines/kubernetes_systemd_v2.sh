#!/bin/bash
# In the virtual machine of tests/support/machine.py, where control groups are of version 2 alone: groups with the names that a
# kubelet with the driver systemd gives to pods, and containerd, CRI-O and Docker to their containers. Each holds a
# process. No kubelet runs: it wants systemd. The machine is /vmout/NAME.json. kubernetes_systemd_v2.sh NAME PYTHON
set -eu
NAME=$1 PYTHON=$2
TOP=/sys/fs/cgroup CONTROLLERS="+cpu +cpuset +memory +pids +io"

# CLASS UID RUNTIME MEMORY CPU
container() {
  local pod="kubepods-$1-pod${2//-/_}.slice" id
  id=$(printf '%s' "$2" | sha256sum | cut -c 1-64)
  local path="$TOP/kubepods.slice/kubepods-$1.slice/$pod/$3-$id.scope" at="$TOP" part
  for part in kubepods.slice "kubepods-$1.slice" "$pod" "$3-$id.scope"; do
    echo "$CONTROLLERS" >"$at/cgroup.subtree_control"
    at="$at/$part"
    mkdir -p "$at"
  done
  echo "$4" >"${path%/*}/memory.max"
  echo "$5 100000" >"${path%/*}/cpu.max"
  (echo "$BASHPID" >"$path/cgroup.procs"; exec /bin/busybox sleep 900) &
}
container burstable 11111111-2222-3333-4444-555555555555 cri-containerd $((64 << 20)) 50000
container besteffort 22222222-2222-3333-4444-555555555555 crio $((32 << 20)) 100000
container burstable 33333333-2222-3333-4444-555555555555 docker $((96 << 20)) 25000
until [ "$(grep -l '^Name:.busybox' /proc/[0-9]*/status 2>/dev/null | wc -l)" -ge 3 ]; do sleep .3; done
sleep 1
"$PYTHON" -m tests.unit.collect.machines.record running "$NAME" kubepods ""
cp "tests/unit/collect/machines/$NAME.json" /vmout/
