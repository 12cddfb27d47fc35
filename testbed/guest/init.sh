#!/bin/busybox sh
# First process of a test guest: mounts the kernel's file systems, loads modules, runs /testbed/command
# with its output on virtio-serial ports 1 and 2, and tells on port 3 that it started and how it ended.
export PATH=/bin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /dev/pts
mount -t devpts devpts /dev/pts
for dir in /dev/shm /tmp /run; do mount -t tmpfs tmpfs $dir; done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
ip link set lo up

while read -r module; do
    insmod "/testbed/modules/$module" || echo "testbed: cannot load $module" >/dev/kmsg
done </testbed/modules.list

cd /root || exit 1
# The ports come up by themselves; until then writing to them fails.
tries=0
until [ -c /dev/vport0p3 ] && echo started 2>/dev/null >/dev/vport0p3; do
    tries=$((tries + 1))
    [ $tries -lt 400 ] || poweroff -f
    usleep 25000
done
setsid sh /testbed/command </dev/null >/dev/vport0p1 2>/dev/vport0p2
echo "exit $?" >/dev/vport0p3
# The host ends the machine as soon as it has read the line above.
sleep 60
poweroff -f
