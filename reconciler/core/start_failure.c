/* SPDX-License-Identifier: Apache-2.0 */
/* start_failure.c - a table of failures, remedies and exit codes. */
#include "reconciler/core/start_failure.h"

#include <errno.h>
#include <stdbool.h>

#include "lib/path.h"
#include "reconciler/core/instance.h"
#include "store/store.h"

/* Failures of the steps other than opening the database that have their own remedy, each
 * represented by the errno that describes it best. */
enum {
    WRONG_VALUE = -EINVAL,
    NO_OPENAT2 = -ENOSYS,
    ADDRESS_IN_USE = -EADDRINUSE,
};

static bool is_forbidden(int result)
{
    return result == PATH_FORBIDDEN || result == PATH_NOT_PERMITTED;
}

static const char *remedy_of_config(int result)
{
    switch (result) {
    case NO_OPENAT2:
        return "openat2(2) is missing: crustd needs Linux 5.6, and no filter that hides this call, "
               "as RestrictSUIDSGID=yes does on Debian 12";
    case PATH_FORBIDDEN:
    case PATH_NOT_PERMITTED:
        return "run crustd as root, and let root read this file";
    case PATH_MISSING:
        return "create it, or correct --config";
    default:
        return "correct it, and try with crustd --check-config";
    }
}

static const char *remedy_of_database(int result)
{
    switch (result) {
    case STORE_NO_SPACE:
        return "free space on its file system";
    case STORE_READ_ONLY:
        return "make its file system writable";
    case STORE_FORBIDDEN:
        return "let root write there";
    case STORE_LOCKED:
        return "end the program that keeps it locked";
    case STORE_MISSING:
        return "let its directory be made";
    case STORE_DAMAGED:
        return "let it be set aside: its directory must be writable";
    case STORE_IN_THE_WAY:
    case STORE_FAULT:
        return "move away what stands there";
    case STORE_NO_MEMORY:
        return "give crustd more memory";
    case STORE_FOREIGN:
        return "move that away, or set paths.database";
    case STORE_NEWER:
        return "upgrade crustd, or move it away";
    case INSTANCE_LOCKED:
        return "end the other crustd";
    default:
        return "see the kernel's log about its disk";
    }
}

static const char *remedy_of_serving(int result)
{
    switch (result) {
    case WRONG_VALUE:
        return "correct that key in the configuration, or create what it names";
    case ADDRESS_IN_USE:
        return "end or remove what is there, or name another place in the configuration";
    case PATH_FORBIDDEN:
    case PATH_NOT_PERMITTED:
        return "run crustd as root, for paths.socket_group with that group among its own "
               "(SupplementaryGroups= in the unit)";
    default:
        return "see to the reason, or name another place in the configuration";
    }
}

const char *start_failure_remedy(enum start_step step, int result)
{
    switch (step) {
    case START_CONFIG:
        return remedy_of_config(result);
    case START_DATABASE:
        return remedy_of_database(result);
    case START_SERVING:
        return remedy_of_serving(result);
    case START_OTHER:
        break;
    }
    return is_forbidden(result)
               ? "run crustd as root, with the capabilities of its unit or manifest"
               : "crustctl doctor says what this node lacks";
}

/* The file in the database's place does not belong to crustd, and does not go away by itself. */
static bool is_refused(int result)
{
    return result == STORE_FOREIGN || result == STORE_NEWER || result == STORE_IN_THE_WAY ||
           result == STORE_FAULT;
}

int start_failure_exit_code(enum start_step step, int result)
{
    if (step == START_CONFIG)
        return EXIT_USAGE;
    if (step == START_DATABASE && result == INSTANCE_LOCKED)
        return EXIT_LOCKED;
    if (step == START_DATABASE)
        return is_refused(result) ? EXIT_REFUSED : EXIT_FAILED;
    /* A value that is wrong only on this machine, such as a group that does not exist, or that
     * crustd is not a member of: another start has no more rights. */
    if (result == WRONG_VALUE || (step == START_SERVING && result == PATH_NOT_PERMITTED))
        return EXIT_USAGE;
    return EXIT_FAILED;
}
