/* SPDX-License-Identifier: Apache-2.0 */
/* watches.c - crustd has one inotify instance, with a watch for each directory of metadata and of
 * sandboxes, and for those that lead to them. The limits are a user's: kubelet, container engine
 * and crustd are all root and share them. So one watch is tried now, and the limit is compared with
 * twice the number needed.
 */
#include "doctor/watches.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"

enum { WAYS = 64, MOST = 65536 };

static uint64_t read_limit(const char *path)
{
    char text[32] = "";
    FILE *file = fopen(path, "re");

    if (!file)
        return 0;
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    (void)fclose(file);
    return strtoull(text, NULL, 10);
}

static unsigned count_directories(int root, const char *path)
{
    cleanup(dir_closep) DIR *stream = NULL;
    const struct dirent *entry;
    unsigned count = 0;

    if (directory_list_in_root(root, path, &stream) < 0)
        return 0;
    while (count < MOST && (entry = readdir(stream)))
        count += entry->d_type == DT_DIR && entry->d_name[0] != '.';
    return count;
}

static void try_watch(struct watch_facts *facts)
{
    cleanup(fd_closep) int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

    facts->instance = fd < 0 ? -errno : 0;
    if (fd >= 0 && inotify_add_watch(fd, "/", IN_DELETE_SELF | IN_ONLYDIR) < 0)
        facts->watch = -errno;
}

void watches_read(int root, const struct config *config, struct watch_facts *ret_facts)
{
    const char *const paths[] = {config->paths.kata_volumes, config->paths.crust_volumes,
                                 config->paths.kata_go_sandboxes, config->paths.kata_go_vms,
                                 config->paths.kata_rs_sandboxes};
    struct watch_facts facts = {
        .max_instances = read_limit("/proc/sys/fs/inotify/max_user_instances"),
        .max_watches = read_limit("/proc/sys/fs/inotify/max_user_watches"),
        .needed = WAYS,
    };

    for (size_t i = 0; i < array_length(paths); i++)
        facts.needed += count_directories(root, paths[i]);
    try_watch(&facts);
    *ret_facts = facts;
}

void watches_judge(const struct watch_facts *facts, struct findings *findings)
{
    if (facts->instance < 0)
        findings_add(findings, FINDING_ERROR, "inotify", "fs.inotify.max_user_instances",
                     "sysctl fs.inotify.max_user_instances=1024",
                     "no inotify instance can be had (%s), and crustd does not start without one; "
                     "the limit is %" PRIu64,
                     strerror(-facts->instance), facts->max_instances);
    else if (facts->watch < 0)
        findings_add(findings, FINDING_WARNING, "inotify", "fs.inotify.max_user_watches",
                     "sysctl fs.inotify.max_user_watches=524288",
                     "no directory can be watched now (%s): new volumes are noticed by the sweep "
                     "only; the limit is %" PRIu64,
                     strerror(-facts->watch), facts->max_watches);
    else if (facts->max_watches < 2 * (uint64_t)facts->needed)
        findings_add(findings, FINDING_WARNING, "inotify", "fs.inotify.max_user_watches",
                     "sysctl fs.inotify.max_user_watches=524288",
                     "%u directories are to be watched, and all of root's programs together have "
                     "%" PRIu64 " watches: what is too many is noticed by the sweep only",
                     facts->needed, facts->max_watches);
    else
        findings_add(findings, FINDING_OK, "inotify", NULL, NULL,
                     "%u directories to watch, of %" PRIu64 " that root may", facts->needed,
                     facts->max_watches);
}
