/* SPDX-License-Identifier: Apache-2.0 */
/* confine.c - see workers.h.
 *
 * Landlock is not used: a process below it may not look at any process outside of it, and workers
 * read /proc/PID/root and /proc/PID/fd of VMMs. The flags of openat2(2) cannot be filtered, because
 * they are in memory; what the daemon's mount namespace shows read-only stays so. The claim of a
 * disk (reconciler/drive/claim.c) relies on that.
 */
#include "lib/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/cleanup.h"

static int keep_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    const unsigned kept = 1U << CAP_SYS_PTRACE | 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH;

    if (syscall(SYS_capget, &header, sets) < 0)
        return -errno;
    sets[0].permitted &= kept;
    sets[0].effective &= kept;
    sets[0].inheritable = 0;
    sets[1] = (struct __user_cap_data_struct){0};
    return syscall(SYS_capset, &header, sets) < 0 ? -errno : 0;
}

static int refuse_calls(scmp_filter_ctx filter)
{
    static const int refused[] = {
        SCMP_SYS(execve),
        SCMP_SYS(execveat),
        SCMP_SYS(ptrace),
        SCMP_SYS(process_vm_readv),
        SCMP_SYS(process_vm_writev),
        SCMP_SYS(kill),
        SCMP_SYS(tkill),
        SCMP_SYS(rt_sigqueueinfo),
        SCMP_SYS(rt_tgsigqueueinfo),
        SCMP_SYS(pidfd_send_signal),
        SCMP_SYS(pidfd_getfd),
        SCMP_SYS(mount),
        SCMP_SYS(umount2),
        SCMP_SYS(move_mount),
        SCMP_SYS(open_tree),
        SCMP_SYS(fsopen),
        SCMP_SYS(fsconfig),
        SCMP_SYS(fsmount),
        SCMP_SYS(mount_setattr),
        SCMP_SYS(pivot_root),
        SCMP_SYS(chroot),
        SCMP_SYS(setns),
        SCMP_SYS(unshare),
        SCMP_SYS(creat),
        SCMP_SYS(unlink),
        SCMP_SYS(unlinkat),
        SCMP_SYS(rename),
        SCMP_SYS(renameat),
        SCMP_SYS(renameat2),
        SCMP_SYS(link),
        SCMP_SYS(linkat),
        SCMP_SYS(symlink),
        SCMP_SYS(symlinkat),
        SCMP_SYS(mkdir),
        SCMP_SYS(mkdirat),
        SCMP_SYS(rmdir),
        SCMP_SYS(mknod),
        SCMP_SYS(mknodat),
        SCMP_SYS(chmod),
        SCMP_SYS(fchmod),
        SCMP_SYS(fchmodat),
        SCMP_SYS(chown),
        SCMP_SYS(lchown),
        SCMP_SYS(fchown),
        SCMP_SYS(fchownat),
        SCMP_SYS(truncate),
        SCMP_SYS(setxattr),
        SCMP_SYS(lsetxattr),
        SCMP_SYS(fsetxattr),
        SCMP_SYS(open_by_handle_at),
        SCMP_SYS(bpf),
        SCMP_SYS(init_module),
        SCMP_SYS(finit_module),
        SCMP_SYS(delete_module),
        SCMP_SYS(kexec_load),
        SCMP_SYS(kexec_file_load),
        SCMP_SYS(reboot),
        SCMP_SYS(swapon),
        SCMP_SYS(swapoff),
        SCMP_SYS(setrlimit),
        SCMP_SYS(io_uring_setup),
        SCMP_SYS(perf_event_open),
        SCMP_SYS(userfaultfd),
        SCMP_SYS(add_key),
        SCMP_SYS(keyctl),
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < array_length(refused); i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
    return r;
}

/* Opening to write or to create, and sockets to the network. */
static int refuse_arguments(scmp_filter_ctx filter)
{
    const scmp_datum_t families[] = {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET};
    const scmp_datum_t flags[] = {O_WRONLY, O_RDWR, O_CREAT, O_TRUNC};
    int r = 0;

    for (size_t i = 0; r == 0 && i < array_length(flags); i++) {
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(openat), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
        if (r == 0)
            r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(open), 1,
                                 SCMP_A1(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
    }
    for (size_t i = 0; r == 0 && i < array_length(families); i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
                             SCMP_A0(SCMP_CMP_EQ, families[i], 0));
    return r;
}

int confine_workers(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int r = filter ? 0 : -ENOMEM;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        r = -errno;
    if (prctl(PR_GET_SECCOMP) < 0) { /* this kernel has none */
        seccomp_release(filter);
        return r == 0 ? keep_capabilities() : r;
    }
    if (r == 0)
        r = refuse_calls(filter);
    if (r == 0)
        r = refuse_arguments(filter);
    if (r == 0)
        r = seccomp_load(filter);
    seccomp_release(filter);
    return r == 0 ? keep_capabilities() : r;
}
