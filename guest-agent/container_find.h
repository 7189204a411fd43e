/* SPDX-License-Identifier: Apache-2.0 */
/* container_find.h - the first process of a container that kata-agent runs in this guest.
 *
 * kata-agent names a container's cgroup after it: "/ID", or the path that the runtime asked for,
 * which ends with the id (with systemd "PREFIX-ID.scope"). Its processes are children of the agent,
 * which is in the same pid namespace as this process, and have a mount namespace of their own.
 *
 * What a container can do about it: one that may write to the cgroup file system can call a cgroup
 * of its own after another container. Its own children have a parent in its pid namespace and do
 * not count. Its first process, moved there, makes the id ambiguous for as long as the other
 * container runs, and nothing is mounted. Such a container has CAP_SYS_ADMIN in the guest.
 *
 * Source: rustjail's container.rs in Kata Containers 4.1.0 (cgroups_path), proc(5), cgroups(7),
 * pid_namespaces(7).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum container_outcome {
    CONTAINER_FOUND,
    CONTAINER_ABSENT,    /* no process of it runs */
    CONTAINER_AMBIGUOUS, /* several mount namespaces seem to be its own */
};

struct container_place {
    int process;  /* O_PATH of its directory in /proc; the caller closes it */
    ino_t mounts; /* of its mount namespace */
};

/* proc: "/proc". id: as drive_container_id_is_valid() has it. ret_place is filled if it is FOUND.
 * An outcome, or -errno. */
int container_find(const char *proc, const char *id, struct container_place *ret_place);

/* Whether a path of a cgroup is the container's own, or below it. */
bool container_has_cgroup(const char *path, size_t length, const char *id);
