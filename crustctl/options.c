/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the command line, by getopt_long(3), which lets options stand anywhere. */
#include "crustctl/options.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "model/reason.h"

enum {
    LONG_ROOT = 256,
    LONG_CONFIG,
    LONG_BLOCKED,
    LONG_STALLED,
    LONG_NOT_RESIZABLE,
    LONG_FOR,
    LONG_TIMEOUT,
    LONG_DRY_RUN,
    LONG_VOLUME_PATH,
    LONG_MOUNT_INFO,
    LONG_SIZE,
    LONG_VERSION,
    LONG_SANDBOX,
    LONG_HOST_PATH,
    LONG_VM_PATH,
    LONG_TYPE,
    LONG_OPTION,
    LONG_WRITABLE,
    LONG_FSCK,
    LONG_FS_GROUP,
    LONG_FS_GROUP_POLICY,
    LONG_BANDWIDTH,
    LONG_OPERATIONS,
    LONG_CONTAINER,
    LONG_PROBLEMS,
};

static const struct option long_options[] = {
    {"root", required_argument, NULL, LONG_ROOT},
    {"config", required_argument, NULL, LONG_CONFIG},
    {"output", required_argument, NULL, 'o'},
    {"blocked", no_argument, NULL, LONG_BLOCKED},
    {"stalled", no_argument, NULL, LONG_STALLED},
    {"not-resizable", no_argument, NULL, LONG_NOT_RESIZABLE},
    {"all", no_argument, NULL, 'a'},
    {"lines", required_argument, NULL, 'n'},
    {"follow", no_argument, NULL, 'f'},
    {"for", required_argument, NULL, LONG_FOR},
    {"timeout", required_argument, NULL, LONG_TIMEOUT},
    {"dry-run", no_argument, NULL, LONG_DRY_RUN},
    {"problems", no_argument, NULL, LONG_PROBLEMS},
    {"volume-path", required_argument, NULL, LONG_VOLUME_PATH},
    {"mount-info", required_argument, NULL, LONG_MOUNT_INFO},
    {"size", required_argument, NULL, LONG_SIZE},
    {"sandbox", required_argument, NULL, LONG_SANDBOX},
    {"host-path", required_argument, NULL, LONG_HOST_PATH},
    {"vm-path", required_argument, NULL, LONG_VM_PATH},
    {"type", required_argument, NULL, LONG_TYPE},
    {"option", required_argument, NULL, LONG_OPTION},
    {"writable", no_argument, NULL, LONG_WRITABLE},
    {"fsck", no_argument, NULL, LONG_FSCK},
    {"fs-group", required_argument, NULL, LONG_FS_GROUP},
    {"fs-group-policy", required_argument, NULL, LONG_FS_GROUP_POLICY},
    {"bandwidth", required_argument, NULL, LONG_BANDWIDTH},
    {"operations", required_argument, NULL, LONG_OPERATIONS},
    {"container", required_argument, NULL, LONG_CONTAINER},
    {"version", no_argument, NULL, LONG_VERSION},
    {"help", no_argument, NULL, 'h'},
    {0},
};

#define TEXT(member) offsetof(struct options, member)

/* What is noted of each option; take_option() does the rest. */
static const struct {
    int option;
    unsigned given;
    const char *name;
    size_t text; /* the member that gets its value; 0: none */
} noted[] = {
    {LONG_CONFIG, 0, "--config", TEXT(config_file)},
    {LONG_BLOCKED, OPTION_BLOCKED, "--blocked", 0},
    {LONG_STALLED, OPTION_STALLED, "--stalled", 0},
    {LONG_NOT_RESIZABLE, OPTION_NOT_RESIZABLE, "--not-resizable", 0},
    {'a', OPTION_ALL, "--all", 0},
    {'n', OPTION_LINES, "-n", 0},
    {'f', OPTION_FOLLOW, "-f", 0},
    {LONG_FOR, OPTION_FOR, "--for", TEXT(wanted_state)},
    {LONG_TIMEOUT, OPTION_TIMEOUT, "--timeout", 0},
    {LONG_DRY_RUN, OPTION_DRY_RUN, "--dry-run", 0},
    {LONG_PROBLEMS, OPTION_PROBLEMS, "--problems", 0},
    {LONG_VOLUME_PATH, OPTION_VOLUME_PATH, "--volume-path", TEXT(volume_path)},
    {LONG_MOUNT_INFO, OPTION_MOUNT_INFO, "--mount-info", TEXT(mount_info)},
    {LONG_SIZE, OPTION_SIZE, "--size", TEXT(size)},
    {LONG_SANDBOX, OPTION_SANDBOX, "--sandbox", TEXT(drive.sandbox)},
    {LONG_HOST_PATH, OPTION_HOST_PATH, "--host-path", TEXT(drive.host_path)},
    {LONG_VM_PATH, OPTION_VM_PATH, "--vm-path", TEXT(drive.vm_path)},
    {LONG_TYPE, OPTION_TYPE, "--type", TEXT(drive.fs_type)},
    {LONG_OPTION, OPTION_OPTION, "--option", 0},
    {LONG_WRITABLE, OPTION_WRITABLE, "--writable", 0},
    {LONG_FSCK, OPTION_FSCK, "--fsck", 0},
    {LONG_FS_GROUP, OPTION_FS_GROUP, "--fs-group", TEXT(drive.fs_group)},
    {LONG_FS_GROUP_POLICY, OPTION_FS_GROUP_POLICY, "--fs-group-policy",
     TEXT(drive.fs_group_policy)},
    {LONG_BANDWIDTH, OPTION_BANDWIDTH, "--bandwidth", TEXT(drive.bandwidth)},
    {LONG_OPERATIONS, OPTION_OPERATIONS, "--operations", TEXT(drive.operations)},
    {LONG_CONTAINER, OPTION_CONTAINER, "--container", 0},
    {0, OPTION_WIDE, "-o wide", 0}, /* take_format() */
};

const char *options_name(unsigned given)
{
    for (size_t i = 0; i < array_length(noted); i++)
        if (given & noted[i].given)
            return noted[i].name;
    return "one of these options";
}

static void note_option(int option, struct options *options)
{
    for (size_t i = 0; i < array_length(noted); i++)
        if (noted[i].option == option) {
            options->given |= noted[i].given;
            if (noted[i].text)
                *(const char **)(void *)((char *)options + noted[i].text) = optarg;
        }
}

static int take_number(const char *name, const char *text, int64_t *ret_number, struct error *error)
{
    char *end = NULL;
    long number;

    errno = 0;
    number = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || number > 1000000000)
        return error_set(error, -EINVAL, "%s wants a number, not \"%s\"", name, text);
    *ret_number = number;
    return 0;
}

static int take_format(const char *text, struct options *options, struct error *error)
{
    const bool wide = strcmp(text, "wide") == 0;

    options->json = strcmp(text, "json") == 0;
    options->given = (options->given & ~OPTION_WIDE) | (wide ? OPTION_WIDE : 0);
    if (!options->json && !wide && strcmp(text, "text") != 0)
        return error_set(error, -EINVAL, "-o wants text, wide or json, not \"%s\"", text);
    return 0;
}

/* One more of an option that may be repeated. */
static int add_text(const char *name, const char **list, unsigned *count, unsigned most,
                    struct error *error)
{
    if (*count == most)
        return error_set(error, -EINVAL, "%s is given more than %u times", name, most);
    list[(*count)++] = optarg;
    return 0;
}

static int take_option(int option, struct options *options, struct error *error)
{
    struct drive_options *drive = &options->drive;

    note_option(option, options);
    switch (option) {
    case LONG_ROOT:
        options->root = optarg;
        return *optarg ? 0 : error_set(error, -EINVAL, "--root wants a directory");
    case 'o':
        return take_format(optarg, options, error);
    case 'n':
        return take_number("-n", optarg, &options->lines, error);
    case LONG_TIMEOUT:
        return take_number("--timeout", optarg, &options->timeout_seconds, error);
    case LONG_OPTION:
        return add_text("--option", drive->option, &drive->options, array_length(drive->option),
                        error);
    case LONG_CONTAINER:
        return add_text("--container", drive->container, &drive->containers,
                        array_length(drive->container), error);
    case LONG_VERSION:
        options->version = true;
        return 0;
    case 'h':
        options->help = true;
        return 0;
    default:
        return 0;
    }
}

/* getopt's own message, but not printed. optind is already past a long option. */
static int refuse_option(int option, int argc, char *argv[], struct error *error)
{
    const char *word = optind > 0 && optind <= argc ? argv[optind - 1] : "";

    if (option == ':')
        return error_set(error, -EINVAL, "%s wants a value", word);
    if (optopt > 0 && optopt < 256)
        return error_set(error, -EINVAL, "there is no option -%c", optopt);
    if (optopt >= 256)
        return error_set(error, -EINVAL, "%.*s takes no value", (int)strcspn(word, "="), word);
    return error_set(error, -EINVAL, "there is no option %s", word);
}

int options_parse(int argc, char *argv[], struct options *ret_options, struct error *error)
{
    struct options options = {.root = config_root_of_environment(),
                              .config_file = config_file_of_environment(),
                              .timeout_seconds = 60};
    int option;
    int result = 0;

    opterr = 0;
    optind = 0; /* glibc: begin anew */
    while (result == 0 &&
           (option = getopt_long(argc, argv, ":o:an:fh", long_options, NULL)) != -1) {
        if (option == '?' || option == ':')
            return refuse_option(option, argc, argv, error);
        result = take_option(option, &options, error);
    }
    if (result < 0)
        return result;
    if (optind < argc)
        options.command = argv[optind++];
    for (; optind < argc; optind++) {
        if (options.operands == OPTIONS_OPERANDS)
            return error_set(error, -EINVAL, "too many arguments, from \"%s\" on", argv[optind]);
        options.operand[options.operands++] = argv[optind];
    }
    options.drive.writable = options.given & OPTION_WRITABLE;
    options.drive.fsck = options.given & OPTION_FSCK;
    *ret_options = options;
    return 0;
}

/* ---- states --------------------------------------------------------------------------------- */

/* A selector is one of the model's states, alone or with a reason that it can have. */

bool states_match(const char *selector, const char *state, const char *reason)
{
    const size_t length = strcspn(selector, "/");

    if (strlen(state) != length || strncmp(selector, state, length) != 0)
        return false;
    return selector[length] == '\0' || strcmp(selector + length + 1, reason) == 0;
}

bool states_is_selector(const char *selector)
{
    for (unsigned pair = 0; pair < STATES * REASONS; pair++)
        if (reason_is_of(pair % REASONS, pair / REASONS) &&
            states_match(selector, state_name(pair / REASONS), reason_name(pair % REASONS)))
            return true;
    return false;
}
