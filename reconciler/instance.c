/* instance.c - two daemons on one database would be two writers, so the lock stands beside it and
 * not in /run: wherever each thinks its /run is, they meet here.
 */
#include "reconciler/instance.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "reconciler/observe/observe.h"
#include "store/store.h"

static int make_directory(int root, const char *database, struct error *error)
{
    char directory[CONFIG_PATH_BYTES];
    char *slash;
    int r;

    (void)snprintf(directory, sizeof(directory), "%s", database);
    slash = strrchr(directory, '/');
    if (slash == directory)
        return 0;
    *slash = '\0';
    r = path_make_directories(root, directory, 0750);
    return r < 0 ? error_set_errno(error, r, "cannot make %s", directory) : 0;
}

static int take_lock(struct instance *instance, struct error *error)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s.lock", instance->database) >= PATH_MAX)
        return error_set_errno(error, -ENAMETOOLONG, "cannot lock %s", instance->database);
    instance->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (instance->lock < 0)
        return error_set_errno(error, -errno, "cannot open %s", path);
    if (flock(instance->lock, LOCK_EX | LOCK_NB) == 0)
        return INSTANCE_ALONE;
    if (errno == EWOULDBLOCK)
        return error_set(error, INSTANCE_LOCKED, "another crustd holds %s", path);
    return error_set_errno(error, -errno, "cannot lock %s", path);
}

int instance_init(struct instance *instance, int root, const char *root_name,
                  const struct config *config, struct error *error)
{
    const char *database = config->paths.database;
    int r = make_directory(root, database, error);

    if (r < 0)
        return r;
    r = path_resolve(root, root_name, database, instance->database);
    if (r < 0)
        return error_set_errno(error, r, "cannot find the directory of %s", database);
    return take_lock(instance, error);
}

void instance_done(struct instance *instance)
{
    fd_close(instance->lock);
    instance->lock = -1;
}

int instance_open_store(const struct instance *instance, const struct config *config,
                        struct store **ret_store, bool *ret_rebuilt, struct error *error)
{
    char boot_id[OBSERVE_BOOT_ID_BYTES];
    struct store_options options = {
        .path = instance->database,
        .boot_id = boot_id,
        .keep_days = config->history.keep_days,
        .max_rows = config->history.max_rows,
        .ret_rebuilt = ret_rebuilt,
    };
    int r = observe_boot_id(boot_id);

    *ret_rebuilt = false;
    if (r < 0)
        return error_set_errno(error, r, "cannot read the boot id");
    return store_open(&options, ret_store, error);
}
