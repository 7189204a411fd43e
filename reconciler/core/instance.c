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
#include <stdbool.h>
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
                        enum instance_store where, const struct store_gap *gap,
                        struct store **ret_store, struct store_opening *ret_opening,
                        struct error *error)
{
    char boot_id[CLOCK_BOOT_ID_BYTES];
    struct store_options options = {
        .path = where == INSTANCE_STORE_FILE ? instance->database : NULL,
        .boot_id = boot_id,
        .keep_days = config->history.keep_days,
        .max_rows = config->history.max_rows,
        .gap = gap,
        .ret_opening = ret_opening,
    };
    int r = clock_boot_id(boot_id);

    *ret_opening = (struct store_opening){0};
    if (r < 0)
        return error_set_errno(error, r, "cannot read the boot id");
    return store_open(&options, ret_store, error);
}

int instance_try_store(struct instance *instance, const struct config *config,
                       const struct store_gap *gap, struct error *error)
{
    struct store_opening opening;
    struct store *store = NULL;
    int r = instance_take_place(instance, error);

    if (r == INSTANCE_ALONE)
        r = instance_open_store(instance, config, INSTANCE_STORE_FILE, gap, &store, &opening,
                                error);
    store_close(store);
    return r;
}

/* ---- start failure -------------------------------------------------------------------------- */

/* Failures of the steps other than opening the database that have their own remedy, each
 * represented by the errno that describes it best. */
enum {
    WRONG_VALUE = -EINVAL,
    NO_OPENAT2 = -ENOSYS,
    ADDRESS_IN_USE = -EADDRINUSE,
};

enum { ANY_OTHER = INT_MIN };

#define RUN_IN_THAT_GROUP                                                                          \
    "run crustd as root, for paths.socket_group with that group among its own "                    \
    "(SupplementaryGroups= in the unit)"
#define RUN_WITH_ITS_CAPABILITIES                                                                  \
    "run crustd as root, with the capabilities of its unit or manifest"

static const struct {
    enum start_step step;
    int result;
    const char *remedy;
} remedies[] = {
    {START_CONFIG, NO_OPENAT2,
     "openat2(2) is missing: crustd needs Linux 5.6, and no filter that hides this call, as "
     "RestrictSUIDSGID=yes does on Debian 12"},
    {START_CONFIG, PATH_FORBIDDEN, "run crustd as root, and let root read this file"},
    {START_CONFIG, PATH_NOT_PERMITTED, "run crustd as root, and let root read this file"},
    {START_CONFIG, PATH_MISSING, "create it, or correct --config"},
    {START_CONFIG, ANY_OTHER, "correct it, and try with crustd --check-config"},

    {START_DATABASE, STORE_NO_SPACE, "free space on its file system"},
    {START_DATABASE, STORE_READ_ONLY, "make its file system writable"},
    {START_DATABASE, STORE_FORBIDDEN, "let root write there"},
    {START_DATABASE, STORE_LOCKED, "end the program that keeps it locked"},
    {START_DATABASE, STORE_MISSING, "let its directory be made"},
    {START_DATABASE, STORE_DAMAGED, "let it be set aside: its directory must be writable"},
    {START_DATABASE, STORE_IN_THE_WAY, "move away what stands there"},
    {START_DATABASE, STORE_FAULT, "move away what stands there"},
    {START_DATABASE, STORE_NO_MEMORY, "give crustd more memory"},
    {START_DATABASE, STORE_FOREIGN, "move that away, or set paths.database"},
    {START_DATABASE, STORE_NEWER, "upgrade crustd, or move it away"},
    {START_DATABASE, INSTANCE_LOCKED, "end the other crustd"},
    {START_DATABASE, ANY_OTHER, "see the kernel's log about its disk"},

    {START_SERVING, WRONG_VALUE, "correct that key in the configuration, or create what it names"},
    {START_SERVING, ADDRESS_IN_USE,
     "end or remove what is there, or name another place in the configuration"},
    {START_SERVING, PATH_FORBIDDEN, RUN_IN_THAT_GROUP},
    {START_SERVING, PATH_NOT_PERMITTED, RUN_IN_THAT_GROUP},
    {START_SERVING, ANY_OTHER, "see to the reason, or name another place in the configuration"},

    {START_OTHER, PATH_FORBIDDEN, RUN_WITH_ITS_CAPABILITIES},
    {START_OTHER, PATH_NOT_PERMITTED, RUN_WITH_ITS_CAPABILITIES},
    {START_OTHER, ANY_OTHER, "crustctl doctor says what this node lacks"},
};

const char *start_failure_remedy(enum start_step step, int result)
{
    unsigned i = 0;

    while (remedies[i].step != step ||
           (remedies[i].result != result && remedies[i].result != ANY_OTHER))
        i++;
    return remedies[i].remedy;
}

int start_failure_exit_code(enum start_step step, int result)
{
    if (step == START_CONFIG)
        return EXIT_USAGE;
    if (step == START_DATABASE && result == INSTANCE_LOCKED)
        return EXIT_LOCKED;
    /* The file in the database's place does not belong to crustd, and does not go away by itself.
     */
    if (step == START_DATABASE)
        return result == STORE_FOREIGN || result == STORE_NEWER || result == STORE_IN_THE_WAY ||
                       result == STORE_FAULT
                   ? EXIT_REFUSED
                   : EXIT_FAILED;
    /* A value that is wrong only on this machine, such as a group that does not exist, or that
     * crustd is not a member of: another start has no more rights. */
    if (result == WRONG_VALUE || (step == START_SERVING && result == PATH_NOT_PERMITTED))
        return EXIT_USAGE;
    return EXIT_FAILED;
}
