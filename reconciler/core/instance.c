/* SPDX-License-Identifier: Apache-2.0 */
/* instance.c - prevents two daemons from writing to one database. The lock stands beside the
 * database and not in /run, because two daemons may have different directories as /run.
 *
 * The directory itself is locked: that works on a full or read-only file system, where a lock file
 * could not be made. The directory may be replaced later (removed and made anew, mounted over or
 * uncovered), and a daemon that writes into the new one must hold its lock. So the lock is checked
 * again before a database is opened.
 */
#include "reconciler/core/instance.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "store/store.h"

enum { PAUSES = 50, PAUSE_NS = 10 * NSEC_PER_MSEC };

void instance_init(struct instance *instance, int root, const char *root_name,
                   const struct config *config)
{
    instance->root = root;
    instance->root_name = root_name;
    (void)snprintf(instance->name, sizeof(instance->name), "%s", config->paths.database);
}

static int make_directory(const struct instance *instance, struct error *error)
{
    char directory[CONFIG_PATH_BYTES];
    char *slash;
    int r;

    (void)snprintf(directory, sizeof(directory), "%s", instance->name);
    slash = strrchr(directory, '/');
    if (slash == directory)
        return 0;
    *slash = '\0';
    r = path_make_directories(instance->root, directory, 0750);
    return r < 0 ? error_set_errno(error, r, "cannot make %s", directory) : 0;
}

static bool is_locked(const struct instance *instance, int directory)
{
    struct stat held, found;

    return instance->lock >= 0 && fstat(instance->lock, &held) == 0 &&
           fstat(directory, &found) == 0 && held.st_dev == found.st_dev &&
           held.st_ino == found.st_ino;
}

static int take_lock(struct instance *instance, struct error *error)
{
    cleanup(fd_closep) int directory = -1;
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s", instance->database);
    strrchr(path, '/')[1] = '\0';
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return error_set_errno(error, -errno, "cannot open %s", path);
    if (is_locked(instance, directory))
        return INSTANCE_ALONE;
    if (flock(directory, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? error_set(error, INSTANCE_LOCKED, "another crustd holds %s", path)
                   : error_set_errno(error, -errno, "cannot lock %s", path);
    fd_close(instance->lock);
    instance->lock = take_fd(&directory);
    return INSTANCE_ALONE;
}

int instance_take_place(struct instance *instance, struct error *error)
{
    int r = make_directory(instance, error);

    if (r < 0)
        return store_failure_of(r);
    r = path_resolve(instance->root, instance->root_name, instance->name, instance->database);
    if (r < 0)
        return store_failure_of(
            error_set_errno(error, r, "cannot find the directory of %s", instance->name));
    return store_failure_of(take_lock(instance, error));
}

int instance_await_place(struct instance *instance, struct error *error)
{
    const struct timespec pause_time = {.tv_nsec = PAUSE_NS};
    int r = instance_take_place(instance, error);

    for (unsigned i = 0; i < PAUSES && r == INSTANCE_LOCKED; i++) {
        (void)nanosleep(&pause_time, NULL);
        r = instance_take_place(instance, error);
    }
    return r;
}

void instance_done(struct instance *instance)
{
    fd_close(instance->lock);
    instance->lock = -1;
}

int instance_open_store(const struct instance *instance, const struct config *config,
                        enum instance_store where, struct store **ret_store,
                        struct store_opening *ret_opening, struct error *error)
{
    char boot_id[CLOCK_BOOT_ID_BYTES];
    struct store_options options = {
        .path = where == INSTANCE_STORE_FILE ? instance->database : NULL,
        .boot_id = boot_id,
        .keep_days = config->history.keep_days,
        .max_rows = config->history.max_rows,
        .ret_opening = ret_opening,
    };
    int r = clock_boot_id(boot_id);

    *ret_opening = (struct store_opening){0};
    if (r < 0)
        return error_set_errno(error, r, "cannot read the boot id");
    return store_open(&options, ret_store, error);
}
