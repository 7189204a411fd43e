/* SPDX-License-Identifier: Apache-2.0 */
/* reason.c - the table of reasons.
 *
 * Texts name configuration keys as section.key and commands as they are typed. Each has to be
 * enough for somebody who sees the word for the first time, at night. Upstream facts: Kata
 * Containers 4.1.0, QEMU 7.2, Cloud Hypervisor 52, Firecracker 1.12.
 *
 * Of the codes, FAILED_PRECONDITION stops the kubelet for as long as the volume stays on the node,
 * so only reasons have it that nothing on the node can change, not even a restart of the pod. The
 * others have UNAVAILABLE: they may still heal, or no call is answered with them.
 */
#include "model/reason.h"

#include "lib/text.h"

/* Where a text applies: the states that can have the reason, and volumes that a resize would not
 * reach. STATES itself stands for a state of another version, which has none. */
#define IN(state)  (1U << STATE_##state)
#define RESIZABLE  (1U << (STATES + 1))
#define HYPERVISOR (IN(BLOCKED) | IN(UNKNOWN) | RESIZABLE)
#define GUEST      (IN(BLOCK_GROWN) | RESIZABLE)

enum { STAYS, HEALS = RESIZABLE - 1 }; /* in no state, in any; IN(state): there alone */

#define ROW(reason, name, heals, code, ...) [REASON_##reason] = {{name, heals, code}, {__VA_ARGS__}}

enum { REASON_TEXTS = 5 };

static const struct {
    struct {
        const char *name;
        unsigned heals;
        enum status_code code; /* where it stays */
    };
    struct {
        unsigned about;
        struct explanation explanation;
    } text[REASON_TEXTS];
} reasons[REASONS] = {
    ROW(NONE, "none", HEALS, STATUS_UNAVAILABLE,
        {.about = IN(UNMANAGED) | IN(UNBOUND) | IN(DETACHED) | IN(SHRUNK) | IN(UNKNOWN) |
                  IN(HOST_GROWN) | IN(BLOCK_GROWN) | IN(IN_SYNC)}),
    ROW(INVALID_MOUNT_INFO, "invalid_mount_info", STAYS, STATUS_UNAVAILABLE,
        {IN(UNMANAGED) | RESIZABLE,
         {"The volume's mountInfo.json cannot be used. crustd keeps the last good facts, if there "
          "were any, and reads the file again whenever it changes.",
          "A mountInfo.json that is valid (the problem is shown below).",
          {"The CSI driver writes this file: look at its log for this volume.",
           "The file must be JSON with a \"device\", no key twice in any letter case, at most 64 "
           "KiB, owned by root, writable by nobody else, and no link."}}}),
    ROW(UNSTAGED, "unstaged", STAYS, STATUS_UNAVAILABLE,
        {IN(UNMANAGED),
         {"The volume's metadata was removed while a sandbox had it, and that sandbox's VM has not "
          "ended.",
          "The end of the VM.",
          {"While the pod ends, this passes within seconds.",
           "If it lasts, see why the VM does not end: the evidence has its process, and journalctl "
           "-t kata what its shim says.",
           "Do not attach the device elsewhere meanwhile: the guest may still write to it."}}}),
    ROW(POLICY, "policy", STAYS, STATUS_FAILED_PRECONDITION,
        {IN(UNMANAGED),
         {"A setting says that this volume is never to be grown.",
          NULL,
          {"resize.mode = never in the configuration holds for all volumes; set it to grow (or "
           "observe) and send crustd a SIGHUP.",
           "\"crust.resize\": \"never\" among the metadata of this volume's mountInfo.json holds "
           "for it alone; the CSI driver copies it from the storage class or the volume's "
           "attributes.",
           "resize.file_backed = never holds for all regular files as devices; observe shows their "
           "new sizes and has the guest of the next VM grow the file system.",
           "resize.block_claims = never holds for all raw block claims."}}},
        {IN(UNKNOWN),
         {"A setting says that crustd only observes, so it does not ask the hypervisor.",
          "Permission to ask.",
          {"resize.mode = observe in the configuration, \"crust.resize\": \"observe\" among the "
           "volume's metadata, or resize.block_claims = observe for raw block claims."}}},
        {IN(HOST_GROWN),
         {"The device has grown, and a setting says that crustd leaves this VM's disk as it is.",
          "Permission to act.",
          {"resize.mode = observe in the configuration holds for all volumes; set it to grow and "
           "send crustd a SIGHUP.",
           "\"crust.resize\": \"observe\" among the metadata of this volume's mountInfo.json holds "
           "for it alone.",
           "resize.block_claims = observe holds for all raw block claims.",
           "crustd sends no VMM the new size of a regular file (resize.file_backed), because it "
           "would "
           "truncate the file: restart the pod, whose next VM opens the file at its size and whose "
           "guest grows the file system. Behind a loop device it grows in the running pod."}}},
        {IN(BLOCKED),
         {"The pod has the annotation io.katacontainers.volume.confidential: its manifest fixes "
          "the size of its devices, so crustd leaves this VM's disk as it is.",
          NULL,
          {"Nothing is wrong. A pod that is created anew sees the device's size as it is then; its "
           "manifest has to allow for it."}}},
        {RESIZABLE,
         {"A setting says that crustd does not resize this volume in this VM. Nothing else is "
          "known to be in the way.",
          "Permission to act.",
          {"resize.mode in the configuration holds for all volumes; set it to grow and send crustd "
           "a SIGHUP.",
           "\"crust.resize\" among the metadata of this volume's mountInfo.json holds for it "
           "alone.",
           "A regular file as a device is not resized in a running VM (resize.file_backed): the "
           "next VM of the volume has its new size. Put it behind a loop device.",
           "Of raw block claims resize.block_claims holds for all, and the annotation "
           "io.katacontainers.volume.confidential for those of its pod."}}}),
    ROW(NOT_A_BLOCK_DEVICE, "not_a_block_device", STAYS, STATUS_FAILED_PRECONDITION,
        {IN(UNMANAGED) | RESIZABLE,
         {"The volume is of a kind that cannot grow here: a passed-through device (vfio), one that "
          "lives in another process (spdk, vhost-user), a network file system, or an emptyDir.",
          NULL,
          {"Nothing is wrong. Resize such a volume where its data is kept."}}}),
    ROW(BUNDLE_UNREADABLE, "bundle_unreadable", STAYS, STATUS_UNAVAILABLE,
        {IN(UNBOUND),
         {"Which volumes a live sandbox has cannot be read in full (the evidence names the sandbox "
          "and the file), so it may use this volume. If it does, a resize does not reach it.",
          "A bundle of each container that can be read.",
          {"crustctl doctor and crustctl sandboxes -o json (problem) say what is wrong with it.",
           "config.json must be JSON, root's, no link, and writable by nobody else.",
           "crustd reads it again by itself, at the latest after resize.sweep_seconds. A pod that "
           "is created again gets new bundles."}}}),
    ROW(NO_DEVICE, "no_device", STAYS, STATUS_UNAVAILABLE,
        {IN(UNBOUND) | IN(BLOCKED) | RESIZABLE,
         {"The path that mountInfo.json gives for the device, or at which the CSI driver has "
          "published a raw block claim, leads to nothing on this node, or into a file system that "
          "may hang (FUSE, NFS and the like), where crustd does not look.",
          "The device at that path.",
          {"Is the volume attached to this node? Look at its path with ls -lL, and at the CSI "
           "driver's log.",
           "If crustd runs in a pod, it must see the host's /dev: --root must name the host's "
           "root."}}}),
    ROW(MULTIPLE_SANDBOXES, "multiple_sandboxes", STAYS, STATUS_UNAVAILABLE,
        {IN(BLOCKED) | RESIZABLE,
         {"More than one live sandbox uses this volume. A file system that is mounted in two VMs "
          "at once is being damaged whatever its size, so crustd does not touch it.",
          "Only one sandbox that uses the volume.",
          {"crustctl sandboxes shows the pods; end all but one of them.",
           "The access mode ReadWriteOncePod keeps it from happening again."}}}),
    ROW(DEVICE_SHARED, "device_shared", STAYS, STATUS_UNAVAILABLE,
        {IN(BLOCKED) | RESIZABLE,
         {"Two volumes that are in use, or a volume and a drive, lead to the same device, in two "
          "live sandboxes or in one. A file system that is mounted in two VMs at once is being "
          "damaged whatever its size; in one VM, one of the two is probably not what its pod "
          "wants. crustd does not touch either.",
          "Only one volume or drive that leads to the device.",
          {"The evidence names both; crustctl mappings and crustctl drives show their sandboxes. "
           "End all but one pod, detach the drive, or correct the metadata that names the wrong "
           "device.",
           "Two volumes on one device are a mistake of the CSI driver or of hand-made volumes."}}}),
    ROW(HOST_IN_USE, "host_in_use", STAYS, STATUS_UNAVAILABLE,
        {IN(BLOCKED) | RESIZABLE,
         {"The device is mounted on the host, or is swap there, while a VM has it.",
          "A device that only the VM uses.",
          {"findmnt --source DEVICE and swapon --show say where; unmount it on the host.",
           "The CSI driver must not stage a direct-assigned volume as a mount: look at its "
           "settings."}}}),
    ROW(IDENTITY_MISMATCH, "identity_mismatch", HEALS, STATUS_UNAVAILABLE,
        {IN(BLOCKED) | RESIZABLE,
         {"The VM has another device open than the one this volume leads to now (the evidence "
          "names both). The device was detached and attached again, and the VM still holds the old "
          "one, or mountInfo.json was rewritten, or the CSI driver has put another device where a "
          "raw block claim is published.",
          "One and the same device on the host and in the VM.",
          {"Restart the pod: its VM then opens the device that is there now.",
           "If the metadata was rewritten by mistake, have the CSI driver write the right device "
           "again.",
           "Do not resize by hand meanwhile: it would reach the wrong device."}}}),
    ROW(ENTRIES_DISAGREE, "entries_disagree", STAYS, STATUS_UNAVAILABLE,
        {IN(BLOCKED) | RESIZABLE,
         {"The volume has several metadata directories, and they name different devices. crustd "
          "does not guess which of them the VM has.",
          "Metadata that agree on the device.",
          {"Whoever staged the volume last knows which is right; have the CSI driver unstage the "
           "other, or remove that directory by hand.",
           "crust.stage_layout = both writes the same into both layouts."}}}),
    ROW(BYPASSED, "bypassed", STAYS, STATUS_UNAVAILABLE,
        {IN(BLOCKED) | RESIZABLE,
         {"A container runs without the volume's device: its runtime shares a directory of the "
          "node with the guest in the volume's place, or the VM has lost the drive (the evidence "
          "says which). What is written into such a directory is on the node's disk, and lost with "
          "the pod.",
          "A pod that has the volume's device.",
          {"Kata's Go runtime ignores direct-assigned volumes with disable_block_device_use = "
           "true, its default since 3.26.0. Set it to false in configuration.toml, or for one pod "
           "by the annotation io.katacontainers.config.hypervisor.disable_block_device_use: "
           "\"false\" where enable_annotations lists it; then create the pod again.",
           "Upstream's reason for the default: with false, a container's root file system on a "
           "block device that the host has mounted is plugged into the VM as well and can be "
           "damaged. Use a snapshotter whose root file systems are no such devices (overlayfs).",
           "subPath: remove it from the pod's mounts of this volume and create the pod again; Kata "
           "cannot combine it with direct-assigned volumes. An unplugged drive comes back with a "
           "restart of the pod.",
           "If a directory has the volume's place, save what was written meanwhile: it is in the "
           "volume's directory on the node, not on the volume."}}}),
    ROW(SANDBOX_ORPHANED, "sandbox_orphaned", STAYS, STATUS_UNAVAILABLE,
        {IN(BLOCKED) | RESIZABLE,
         {"The sandbox's VMM still runs with this volume's device open, and its shim has ended (it "
          "crashed, or the OOM killer ended it). The engine and the kubelet take the pod for gone, "
          "so nothing else will end this VMM, and the next VM with the volume would mount its file "
          "system a second time.",
          "The end of that VMM.",
          {"The evidence has its process id: see with ps that it is the VMM, then kill PID. QEMU "
           "and Cloud Hypervisor end cleanly, and what the guest has not written yet is lost as in "
           "a power failure.",
           "crustd never kills a process. It releases the volume the moment the VMM has ended.",
           "crustctl doctor lists all such VMMs. Raise the memory limit of the pod's overhead, if "
           "the OOM killer ended the shim (journalctl -k)."}}}),
    ROW(RESIZE_UNDONE, "resize_undone", STAYS, STATUS_UNAVAILABLE,
        {IN(BLOCKED) | RESIZABLE,
         {"crustd told the VMM several times that the device has grown, and each time somebody "
          "else set the VM's disk back to less. crustd has stopped, so that two sides do not undo "
          "each other for ever.",
          "Only one program that resizes the VM's disk.",
          {"Look for whoever else does: a CSI driver that calls kata-runtime direct-volume resize "
           "with a size of its own, a script on QEMU's monitor. The journal (crustctl journal) has "
           "the times.",
           "Then crustctl resync has crustd try again, and so does a further growth of the "
           "device."}}}),
    ROW(MONITOR_MISSING, "monitor_missing", STAYS, STATUS_UNAVAILABLE,
        {HYPERVISOR,
         {"The sandbox's VMM has no control socket that crustd may use. QEMU's qmp.sock belongs to "
          "the shim: a second client there can hang the pod's deletion, so crustd leaves it alone. "
          "Cloud Hypervisor's and Firecracker's API socket should be there, and is not.",
          "A monitor of its own for crustd in this sandbox, or the VMM's API socket.",
          {"QEMU: put crustd's drop-in crust-qemu.toml (share/crustd/kata) into config.d beside "
           "Kata's configuration.toml, once the program that it names is on the node. Kata then "
           "starts QEMU through crust-qemu, which adds a monitor. Then restart the pod: a running "
           "one keeps what it was started with. The new VM also sees the new size at once.",
           "QEMU with debug settings instead, Go runtime only: in the section [hypervisor.qemu] "
           "enable_debug = true and extra_monitor_socket = \"qmp\". Then restart the pod. With "
           "\"hmp\" QEMU gets a human monitor, which crustd does not use.",
           "QEMU: check that resize.qemu_monitor is not off (extra is the default). main would use "
           "qmp.sock where there is nothing else; only for runtimes whose shim does not.",
           "Cloud Hypervisor and Firecracker: nothing has to be set up, but crustd has to see "
           "their socket: in a pod, mount the host's /run."}}}),
    ROW(HYPERVISOR_BUSY, "hypervisor_busy", HEALS, STATUS_UNAVAILABLE,
        {HYPERVISOR,
         {"The hypervisor's control socket is there, but other clients hold it (QEMU then gives no "
          "greeting, Cloud Hypervisor and Firecracker answer 503), a block job holds the drive, or "
          "the VM is just starting or ending.",
          "A free control socket and an idle drive.",
          {"Look for whoever is connected to the monitor's socket (ss -xp): a shell with socat, a "
           "script, libvirt. It serves one client at a time.",
           "A backup or mirror of the drive must end first.",
           "crustd tries again by itself; crustctl resync has it try now."}}}),
    ROW(VM_PAUSED, "vm_paused", HEALS, STATUS_UNAVAILABLE,
        {HYPERVISOR | IN(BLOCK_GROWN),
         {"The VM is paused: its guest does not run, so nothing in it answers or grows (the "
          "evidence has the VMM's own word for it). The VMM itself takes the new size.",
          "A VM that runs.",
          {"io-error: QEMU has paused it after an I/O error of a disk. Look at the node's kernel "
           "log and at the storage below its disks, a full thin pool for example; once that is "
           "mended, \"cont\" on QEMU's monitor lets it run again.",
           "paused: whoever paused it has to let it run again: a snapshot or a migration that was "
           "cut short, \"stop\" on QEMU's monitor, vm.pause of Cloud Hypervisor.",
           "crustd asks again with growing pauses; crustctl resync has it ask now."}}}),
    ROW(HYPERVISOR_UNREACHABLE, "hypervisor_unreachable", HEALS, STATUS_UNAVAILABLE,
        {HYPERVISOR,
         {"The hypervisor's control socket cannot be reached, or it did not answer in time.",
          "An answer on the control socket that crustctl sandboxes shows.",
          {"A VMM's process that is stopped (state T in ps) goes on after kill -CONT PID. One that "
           "waits for a disk (state D) goes on when the disk answers: look at the storage.",
           "In a pod, crustd needs the host's pid namespace and /run.",
           "crustd tries again by itself; crustctl resync has it try now. It waits for "
           "resize.call_timeout_seconds."}}}),
    ROW(HYPERVISOR_UNSUPPORTED, "hypervisor_unsupported", STAYS, STATUS_UNAVAILABLE,
        {HYPERVISOR,
         {"This hypervisor, or this kind of drive, cannot be told from outside that a device grew. "
          "The error shown below says why. Firecracker is off by default.",
          "A hypervisor with such a call.",
          {"Restart the pod: a VM that starts sees the device's size as it is.",
           "Firecracker: resize.firecracker = on, and drives with the Sync engine. Its makers "
           "describe the call for drives that the guest has not mounted.",
           "QEMU and Cloud Hypervisor (52 or later) can do it, by Kata's runtime class."}}}),
    ROW(HYPERVISOR_VERSION, "hypervisor_version", STAYS, STATUS_UNAVAILABLE,
        {HYPERVISOR,
         {"This version of the hypervisor cannot do it: Cloud Hypervisor below 52 tries to "
          "truncate a block device and fails. Which version it is stands below. Kata 4.1.0 ships "
          "51.1.",
          "Cloud Hypervisor 52 or later in this sandbox.",
          {"Install a newer one, have the path in Kata's configuration name it, and restart the "
           "pod; a running VM keeps its program.",
           "The restart alone already shows the VM the new size."}}}),
    ROW(HYPERVISOR_REFUSED, "hypervisor_refused", HEALS, STATUS_UNAVAILABLE,
        {HYPERVISOR,
         {"The hypervisor was called and answered with an error.",
          "A hypervisor that accepts the call.",
          {"The VMM's own log has the details.",
           "crustd tries again with growing pauses; crustctl resync has it try now.",
           "If it lasts, restart the pod: a VM that starts sees the device's size as it is."}}}),
    /* Heals: the runtime may still be plugging in the drive. */
    ROW(DRIVE_NOT_FOUND, "drive_not_found", HEALS, STATUS_UNAVAILABLE,
        {HYPERVISOR,
         {"No drive in the hypervisor's list is known to be this device.",
          "A drive of this device in the hypervisor's own list.",
          {"Is the pod starting or ending? Then this passes.",
           "crustctl volume VOL shows which drive was expected; restart the pod if it stays."}}}),
    ROW(READ_ONLY, "read_only", IN(BLOCK_GROWN), STATUS_FAILED_PRECONDITION,
        {IN(UNMANAGED),
         {"The volume's mount options make it read-only for whoever has it, so nobody can grow its "
          "file system. Any number of sandboxes may have it.",
          NULL,
          {"If it is meant to be read-only, nothing is wrong: a resize reaches it with the first "
           "sandbox that may write.",
           "Else remove \"ro\" from the options of its mountInfo.json, which the CSI driver writes "
           "from the pod's readOnly and the claim's access modes."}}},
        {IN(BLOCKED) | IN(UNKNOWN),
         {"The VM has the drive read-only, so nothing in it can be grown, and no VMM resizes it.",
          "Write access, if the volume is meant to be written.",
          {"If it is meant to be read-only, nothing is wrong: a pod that starts anew sees the new "
           "size.",
           "Else look for readOnly in the pod's volume and \"ro\" among mountInfo.json's "
           "options."}}},
        {IN(BLOCK_GROWN),
         {"The guest has mounted the file system read-only, by request and not after an error. "
          "Only a writable one can be grown; the block device has the new size already.",
          "A writable mount of it in the guest.",
          {"In the guest: mount -o remount,rw MOUNTPOINT. crustd tries again with growing pauses; "
           "crustctl resync has it try now.",
           "If it is meant to be read-only, put \"ro\" among the options of mountInfo.json: then "
           "crustd does not try."}}},
        {RESIZABLE,
         {"The volume's mount options, its drive in the VM, or its mount in the guest is "
          "read-only, so nobody can grow its file system.",
          "Write access, if the volume is meant to be written.",
          {"Look for readOnly in the pod's volume, for \"ro\" among mountInfo.json's options, and "
           "for a read-only mount in the guest."}}}),
    /* Heals: the runtime may mount it anew for a container that starts again in the sandbox. */
    ROW(FILE_SYSTEM_SHUT_DOWN, "file_system_shut_down", HEALS, STATUS_UNAVAILABLE,
        {GUEST,
         {"After an error, of the disk or of its own, the guest's kernel has shut the file system "
          "down or made it read-only. Nothing more is written to it, and it cannot be grown.",
          "A file system without errors that is mounted anew.",
          {"The kernel log of the guest has the error. Look at the volume's storage first: the "
           "error may come from there.",
           "End the pod, check the file system (e2fsck, xfs_repair, btrfs check) and start the pod "
           "again. Remounting is not enough.",
           "crustd tries again with growing pauses; crustctl resync has it try now."}}}),
    ROW(AGENT_UNREACHABLE, "agent_unreachable", HEALS, STATUS_UNAVAILABLE,
        {GUEST,
         {"No agent in the guest could be reached, neither crust-guest-agent nor Kata's own, nor "
          "did the sandbox's shim reach it.",
          "An agent that answers.",
          {"crustctl sandboxes shows the agent's address. Is the guest up, and not paused?",
           "vsock needs the host's vhost_vsock module; agent.port and agent.companion_port must be "
           "those that the guest listens on.",
           "crustd tries again by itself; crustctl resync has it try now."}}}),
    ROW(AGENT_UNSUPPORTED, "agent_unsupported", STAYS, STATUS_UNAVAILABLE,
        {GUEST,
         {"The guest's agent does not implement growing a file system: Kata's agent has the call "
          "in its interface and no code behind it. crustd's own helper was not brought in: it is "
          "switched off, or the guest is confidential.",
          "crust-guest-agent in this guest.",
          {"guest.helper = on with helper among agent.routes lets crustd bring a helper into "
           "guests that are not confidential. Or put crust-guest-agent into the guest image, or "
           "run it as a sidecar container of the pod that mounts the volume, with CAP_SYS_RESOURCE "
           "for ext4, CAP_SYS_ADMIN for xfs and btrfs.",
           "It listens on agent.companion_port (1030); agent.routes must name companion.",
           "Or grow the file system in the guest by hand: resize2fs, xfs_growfs, btrfs filesystem "
           "resize max. The block device has the new size already.",
           "crustd remembers what a sandbox cannot do, and asks again after crustctl resync."}}}),
    ROW(AGENT_DENIED, "agent_denied", STAYS, STATUS_FAILED_PRECONDITION,
        {GUEST,
         {"The guest's policy forbids the call. Confidential guests come with such a policy.",
          "Permission in the guest's policy.",
          {"Allow ResizeVolumeRequest and VolumeStatsRequest in the policy (genpolicy's rules.rego "
           "has both as := false) and create the pod anew with it.",
           "crust-guest-agent --auto in the guest grows without being called, so that no rule is "
           "needed."}}}),
    ROW(AGENT_FAILED, "agent_failed", HEALS, STATUS_UNAVAILABLE,
        {GUEST,
         {"The guest's agent tried to grow the file system and failed (its error is below).",
          "A file system that can be grown.",
          {"Look at the guest's kernel log: a damaged or read-only file system cannot be grown.",
           "A sidecar needs CAP_SYS_RESOURCE for ext4, CAP_SYS_ADMIN for xfs and btrfs.",
           "A shim that closed the connection without a status keeps the agent's error to itself: "
           "journalctl -t kata has it. Kata's own agent does not implement the call; "
           "crust-guest-agent in the guest does.",
           "crustd tries again with growing pauses; crustctl resync has it try now."}}}),
    ROW(FILE_SYSTEM_LIMIT, "file_system_limit", STAYS, STATUS_FAILED_PRECONDITION,
        {GUEST,
         {"The file system is as large as one of its making can be (the error below has the size): "
          "ext4 has at most 2^32 - 1 blocks without the feature 64bit, and at most 2^32 inodes, of "
          "which each group has a fixed number. Its device is larger.",
          "A new file system; nothing makes this one larger.",
          {"Its present size is usable as it is. Make a new one on another volume (mkfs.ext4 -O "
           "64bit, a larger -i for fewer inodes) and copy the data."}}}),
    ROW(GROWING, "growing", HEALS, STATUS_UNAVAILABLE,
        {IN(BLOCK_GROWN),
         {"The guest is growing the file system, which takes longer than one call (the error below "
          "says how far it was). It can be used meanwhile.",
          "Time.",
          {"Nothing is wrong: crustd asks again until it is done. One that comes no further is "
           "agent_failed."}}}),
    ROW(AGENT_POLICY_DENIED, "agent_policy_denied", STAYS, STATUS_FAILED_PRECONDITION,
        {GUEST,
         {"The guest's policy forbids the calls by which kata-agent would run crustd's helper for "
          "a moment (the error below names the call). crustd asks this sandbox again only after "
          "crustctl resync.",
          "Permission in the guest's policy, or an agent in the guest that can grow file systems.",
          {"Allow CreateContainerRequest, StartContainerRequest, ReadStreamRequest, "
           "WaitProcessRequest, SignalProcessRequest and RemoveContainerRequest in the policy for "
           "containers whose id begins with crust- (without a shared directory also "
           "CopyFileRequest), and create the pod anew with it. docs/guest-helper.md has the rules, "
           "and what more genpolicy's need: without it the container is not removed.",
           "Or put crust-guest-agent into the guest image; crust-guest-agent --auto needs no rule.",
           "guest.helper = off keeps crustd from trying."}}}),
    ROW(HELPER_NO_SHARE, "helper_no_share", HEALS, STATUS_UNAVAILABLE,
        {GUEST,
         {"The helper that would grow the file system could not be placed where the guest sees it: "
          "the sandbox's shared directory is missing, full, or not what it should be (the error is "
          "below).",
          "Room, and permission to write, in the directory of the node that the sandbox shares "
          "with its guest.",
          {"It is /run/kata-containers/shared/sandboxes/SANDBOX/mounts (Go runtime) or "
           "…/rw/passthrough (Rust runtime). The helper takes about 1 MiB there: df /run on the "
           "node.",
           "In a pod, crustd needs the node's /run, writable; below --root it is looked for there.",
           "crustd tries again with growing pauses; crustctl resync has it try now."}}}),
    ROW(HELPER_MISSING, "helper_missing", HEALS, STATUS_UNAVAILABLE,
        {GUEST,
         {"The guest's own agent cannot grow the file system, and the helper that crustd would "
          "bring into the guest is not on this node (the error names the file).",
          "The file of guest.helper_file: a static crust-guest-agent.",
          {"make install puts it at PREFIX/libexec/crustd/crust-guest-agent; the container image "
           "has it. It must be root's, and writable by nobody else.",
           "crustd tries again with growing pauses; crustctl resync has it try now."}}}),
    ROW(HELPER_WRONG_ARCHITECTURE, "helper_wrong_architecture", HEALS, STATUS_UNAVAILABLE,
        {GUEST,
         {"The helper on this node is built for another architecture than the guest's (the error "
          "is below).",
          "A crust-guest-agent for this node's architecture at guest.helper_file.",
          {"Install crustd's package for this architecture, or set guest.helper_file to the right "
           "program and reload crustd (systemctl reload crustd). file(1) says what a program is "
           "for.",
           "crustd tries again with growing pauses; crustctl resync has it try now."}}}),
    ROW(HELPER_NO_CGROUPS, "helper_no_cgroups", STAYS, STATUS_FAILED_PRECONDITION,
        {GUEST,
         {"kata-agent could not make a control group for the helper's container, so it runs no "
          "further container in this guest (its error is below). crustd asks this sandbox again "
          "only after crustctl resync.",
          "A guest kernel with control groups, mounted as kata-agent expects them, and room for "
          "one more.",
          {"Use a guest kernel with CONFIG_CGROUPS and the controllers of Kata's own "
           "configuration, and create the pod anew.",
           "\"Resource temporarily unavailable\" is a limit in the guest: cgroup.max.descendants "
           "or cgroup.max.depth.",
           "Or put crust-guest-agent into the guest image: it needs no container of its own."}}}),
    ROW(HELPER_FAILED, "helper_failed", HEALS, STATUS_UNAVAILABLE,
        {GUEST,
         {"The helper that crustd brought into the guest did not finish (the error below says at "
          "which call). It was killed and removed, and nothing in the guest was changed by halves: "
          "growing a file system is one step of its kernel's.",
          "A kata-agent that answers in time.",
          {"The agent's log (journalctl -t kata) has what became of the container; its name begins "
           "with crust-. No answer to StartContainer and RemoveContainer is what becomes of a "
           "guest in which no control groups are mounted: kata-agent panics there.",
           "resize.call_timeout_seconds limits how long the helper may take.",
           "crustd tries again with growing pauses; crustctl resync has it try now. guest.helper = "
           "off keeps it from trying."}}}),
    ROW(FILE_SYSTEM_NOT_GROWABLE, "file_system_not_growable", STAYS, STATUS_UNAVAILABLE,
        {GUEST,
         {"The helper reached the volume in the guest, and its file system cannot be grown as it "
          "is: it is mounted read-only, has recorded errors, or is of a kind that does not grow "
          "while it is mounted (the error is below). crustd forces nothing.",
          "A healthy file system that is mounted for writing.",
          {"Errors on record: end the pod, check the file system (fsck, xfs_repair), start the pod "
           "again.",
           "Read-only: remove \"ro\" from the volume's mount options, if it is meant to be "
           "written.",
           "Then crustctl resync has crustd try again."}}}),
    /* Heals: the runtime makes the directory that shows it once the container exists. */
    ROW(GUEST_PATH_UNKNOWN, "guest_path_unknown", HEALS, STATUS_UNAVAILABLE,
        {GUEST,
         {"It is not known where the guest has mounted the volume, so the agent cannot be told "
          "which file system to grow.",
          "The volume's mount point, or its address in the guest.",
          {"It is read from the sandbox's persist.json, or from the container's bundle and the "
           "runtime's passthrough directory: paths.bundles, paths.kata_go_sandboxes and "
           "paths.kata_rs_sandboxes must lead to them. crustd looks again with growing pauses.",
           "crust-guest-agent --auto in the guest needs no path: it grows each file system whose "
           "device has grown."}}}),
    ROW(GUEST_LAYER_UNSUPPORTED, "guest_layer_unsupported", STAYS, STATUS_FAILED_PRECONDITION,
        {GUEST,
         {"In the guest, the file system is not on the device itself but on a layer over it "
          "(encryption, LVM, a partition), which does not follow by itself.",
          "A larger layer in the guest.",
          {"Grow the layer in the guest first: cryptsetup resize, growpart, or pvresize and "
           "lvextend. Then resize2fs, xfs_growfs or btrfs filesystem resize max.",
           "The next pod start does both where the image is made for it."}}}),
    ROW(UNVERIFIED, "unverified", STAYS, STATUS_UNAVAILABLE,
        {IN(IN_SYNC),
         {"crustd could not check everything: the hypervisor could not be asked for the drive and "
          "its size, or the guest could not be asked to grow the file system, or not how large it "
          "is now.",
          NULL,
          {"HYPERVISOR empty in crustctl volumes: its list was not read, or has no sizes (Cloud "
           "Hypervisor, Firecracker; there the guest's word is enough). QEMU needs an extra "
           "monitor; crustctl doctor says how.",
           "GUEST empty: on stock images Kata's own agent can neither grow a file system nor tell "
           "its size. An agent that can, such as crust-guest-agent, lets crustd check by itself; "
           "df in the container shows the size.",
           "resize.mode = observe, and crust.resize = observe, ask nothing of the guest."}}}),
    ROW(HOST_STALE, "host_stale", STAYS, STATUS_UNAVAILABLE,
        {IN(IN_SYNC),
         {"The disk has announced that it grew, but the host's kernel still uses the old size: a "
          "SCSI disk must be rescanned.",
          "A rescan of the disk on this host.",
          {"Rescan the disk by the command above; a multipath device needs it for each path.",
           "resize.scsi_rescan = on has crustd rescan the disk that announced it.",
           "Most CSI drivers do it in NodeExpandVolume: look at the driver's log.",
           "After a rescan without a new size, crustctl resync has crustd forget the "
           "announcement."}}}),
    ROW(HOST_LAYER_PENDING, "host_layer_pending", STAYS, STATUS_UNAVAILABLE,
        {IN(IN_SYNC),
         {"The disk under this device has grown, but the device itself, a device-mapper layer over "
          "it (LUKS, LVM, multipath), has not followed. If the new space is meant for something "
          "else, as it may be in LVM, nothing is wrong.",
          "A larger layer on this host.",
          {"Grow the layer by the command above; multipath needs all of its paths to have one size "
           "first.",
           "Most CSI drivers do it in NodeExpandVolume: look at the driver's log.",
           "crustd notices by itself when the device has grown."}}}),
    /* Explained by the states of the same names. */
    [REASON_SHRUNK] = {.name = "shrunk", .code = STATUS_UNAVAILABLE},
    [REASON_DETACHED] = {.name = "detached", .code = STATUS_UNAVAILABLE},
    ROW(DRIVES_NOT_READ, "drives_not_read", STAYS, STATUS_UNAVAILABLE,
        {RESIZABLE,
         {"The hypervisor's list of drives has not been read since the sandbox got the volume, so "
          "it is not known whether the VM has the drive and can be told of a new size.",
          "The hypervisor's list, read once.",
          {"It is read when the sandbox gets the volume; crustctl resync has it read now."}}}),
    ROW(GUEST_NOT_ASKED, "guest_not_asked", STAYS, STATUS_UNAVAILABLE,
        {RESIZABLE,
         {"The guest has not been called for this volume since the sandbox got it, so it is not "
          "known whether anything in it is able to grow the file system.",
          "A first call to the guest.",
          {"It is made when the sandbox gets the volume; crustctl resync has it made now."}}}),
};

WORDS(reason, enum volume_reason, reasons, REASONS, REASON_NONE)

bool reason_heals(enum volume_reason reason, enum volume_state state)
{
    return reasons[reason].heals & 1U << state;
}

enum status_code reason_code(enum volume_reason reason, enum volume_state state)
{
    return reason_heals(reason, state) ? STATUS_UNAVAILABLE : reasons[reason].code;
}

/* The explanation that applies, NULL if none does. */
static const struct explanation *find_text(enum volume_reason reason, unsigned about)
{
    for (unsigned i = 0; i < REASON_TEXTS; i++)
        if (reasons[reason].text[i].about & about)
            return &reasons[reason].text[i].explanation;
    return NULL;
}

bool reason_is_of(enum volume_reason reason, enum volume_state state)
{
    return find_text(reason, 1U << state) != NULL;
}

const struct explanation *reason_explain(enum volume_reason reason, enum volume_state state)
{
    return reason == REASON_NONE ? NULL : find_text(reason, 1U << state);
}

const struct explanation *reason_explain_resizable(enum volume_reason reason)
{
    if (reason == REASON_SHRUNK)
        return state_explain(STATE_SHRUNK);
    return reason == REASON_DETACHED ? state_explain(STATE_DETACHED) : find_text(reason, RESIZABLE);
}
