/* SPDX-License-Identifier: Apache-2.0 */
/* database.c - see database.h.
 *
 * The lock stands beside the database and not in /run, because two daemons may have different
 * directories as /run. The directory itself is locked: that works on a full or read-only file
 * system, where a lock file could not be made. The directory may be replaced later (removed and
 * made anew, mounted over or uncovered), and a daemon that writes into the new one must hold its
 * lock. So the lock is checked again before a database is opened.
 *
 * A failed operation is not repeated on the same handle. Only a file that another program keeps
 * locked is given some passes first. Failures that are not the file's (no memory, a fault in
 * crustd) would occur after a restart as well, so they only delay the next pass.
 */
#include "reconciler/core/database.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/path.h"
#include "reconciler/core/context.h"
#include "reconciler/core/reconciler_internal.h"
#include "store/store.h"

void instance_init(struct instance *instance, int root, const char *root_name,
                   const struct config *config)
{
    instance->root = root;
    instance->root_name = root_name;
    (void)snprintf(instance->name, sizeof(instance->name), "%s", config->paths.database);
}

static int take_lock(struct instance *instance, struct error *error)
{
    cleanup(fd_closep) int directory = -1;
    struct stat held, found;
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s", instance->database);
    strrchr(path, '/')[1] = '\0';
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return error_set_errno(error, -errno, "cannot open %s", path);
    if (instance->lock >= 0 && fstat(instance->lock, &held) == 0 && fstat(directory, &found) == 0 &&
        held.st_dev == found.st_dev && held.st_ino == found.st_ino)
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
    char directory[CONFIG_PATH_BYTES];
    char *slash;
    int r = 0;

    (void)snprintf(directory, sizeof(directory), "%s", instance->name);
    slash = strrchr(directory, '/');
    *slash = '\0';
    if (slash != directory)
        r = path_make_directories(instance->root, directory, 0750);
    if (r < 0)
        return store_failure_of(error_set_errno(error, r, "cannot make %s", directory));
    r = path_resolve(instance->root, instance->root_name, instance->name, instance->database);
    if (r < 0)
        return store_failure_of(
            error_set_errno(error, r, "cannot find the directory of %s", instance->name));
    return store_failure_of(take_lock(instance, error));
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

/* ---- failures while crustd runs -------------------------------------------------------------- */

enum {
    BUSY_PASSES = 5, /* one second apart */
    LASTING_PASSES = 5,
};
static const uint64_t TRY_NS = 60 * NSEC_PER_SEC;
static const uint64_t SOON_NS = 100 * NSEC_PER_MSEC; /* whoever asked is answered first */

static void set_degraded(struct database *database, int r, const char *text)
{
    char problem[ERROR_TEXT_BYTES];

    (void)snprintf(problem, sizeof(problem),
                   "the database fails: %.110s: %s; meanwhile crustd grows volumes from memory and "
                   "removes nothing",
                   text, start_failure_remedy(START_DATABASE, r));
    if (strcmp(database->degraded, problem) != 0)
        log_error(NULL, "%s", problem);
    (void)snprintf(database->degraded, sizeof(database->degraded), "%s", problem);
}

/* The file is good if it opens as at a start. Its journal then records the gap. */
static void on_timer(struct loop_timer *timer)
{
    struct database *database = container_of(timer, struct database, timer);
    const struct store_gap gap = {database->began_ms, database->degraded, .is_certain = true};
    struct error error = {0};
    int r;

    database->tries_soon = false;
    if (database->context->stopping)
        return;
    r = instance_try_store(database->options->instance, database->context->config, &gap, &error);
    if (r == STORE_OPENED) {
        log_info(NULL, "the database is in use again: %s", database->options->instance->database);
        database->options->restart(database->options->userdata, STORE_OPENED, "");
    } else {
        set_degraded(database, r, error.text);
        loop_timer_start(database->context->loop, timer, TRY_NS, on_timer);
    }
}

void database_begin_in_memory(struct database *database, const struct error *error)
{
    database->began_ms = clock_realtime_ms();
    set_degraded(database, store_failure_of(error->code), error->text);
    loop_timer_start(database->context->loop, &database->timer, TRY_NS, on_timer);
}

void database_try_soon(struct database *database)
{
    if (!store_is_in_memory(database->context->store) || database->tries_soon)
        return;
    database->tries_soon = true;
    loop_timer_start(database->context->loop, &database->timer, SOON_NS, on_timer);
}

void database_done(struct database *database)
{
    loop_timer_stop(&database->timer);
}

static bool is_of_the_file(const struct database *database, int r)
{
    if (database->context->stopping || store_is_in_memory(database->context->store))
        return false;
    switch (r) {
    case STORE_NO_MEMORY:
    case STORE_FAULT:
    case STORE_TOO_BIG:
    case STORE_RUNNING:
        return false;
    case STORE_LOCKED:
        return database->failed_passes >= BUSY_PASSES;
    default:
        return true;
    }
}

void database_on_failure(struct database *database, int r, const char *text)
{
    char problem[ERROR_TEXT_BYTES];

    database->failed_passes++;
    (void)snprintf(problem, sizeof(problem), "the database fails: %.180s (%s)", text, strerror(-r));
    if (strcmp(database->failing, problem) != 0)
        log_error(NULL, "%s", problem);
    (void)snprintf(database->failing, sizeof(database->failing), "%s", problem);
    if (is_of_the_file(database, r)) {
        log_warning(NULL, "the database fails and is being reopened: %s", text);
        database->options->restart(database->options->userdata, r, text);
    }
}

void database_check_file(struct database *database)
{
    int r = store_check_file(database->context->store);

    if (r == 0 || database->context->stopping)
        return;
    database_on_failure(database, r,
                        r == STORE_MISSING || r == STORE_REPLACED
                            ? "its file was removed or replaced"
                        : r == STORE_DAMAGED ? "its file was overwritten"
                                             : strerror(-r));
}

void database_on_success(struct database *database)
{
    database->failing[0] = '\0';
    database->failed_passes = 0;
}

bool database_is_waiting(const struct database *database)
{
    return database->failing[0] != '\0';
}

bool database_is_lasting(const struct database *database)
{
    return database->failed_passes >= LASTING_PASSES;
}

bool database_fails(const struct database *database)
{
    return database->failed_passes > 0 || database->degraded[0];
}

const char *database_problem(const struct database *database)
{
    if (database->degraded[0])
        return database->degraded;
    return database->failing[0] ? database->failing : NULL;
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
