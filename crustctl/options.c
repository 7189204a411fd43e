/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the command line, by getopt_long(3), which lets options stand anywhere. */
#include "crustctl/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"

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

const char *options_name(unsigned given)
{
    static const struct {
        unsigned option;
        const char *name;
    } names[] = {
        {OPTION_BLOCKED, "--blocked"},
        {OPTION_STALLED, "--stalled"},
        {OPTION_NOT_RESIZABLE, "--not-resizable"},
        {OPTION_ALL, "--all"},
        {OPTION_LINES, "-n"},
        {OPTION_FOLLOW, "-f"},
        {OPTION_FOR, "--for"},
        {OPTION_TIMEOUT, "--timeout"},
        {OPTION_DRY_RUN, "--dry-run"},
        {OPTION_VOLUME_PATH, "--volume-path"},
        {OPTION_MOUNT_INFO, "--mount-info"},
        {OPTION_SIZE, "--size"},
        {OPTION_SANDBOX, "--sandbox"},
        {OPTION_HOST_PATH, "--host-path"},
        {OPTION_VM_PATH, "--vm-path"},
        {OPTION_TYPE, "--type"},
        {OPTION_OPTION, "--option"},
        {OPTION_WRITABLE, "--writable"},
        {OPTION_FSCK, "--fsck"},
        {OPTION_FS_GROUP, "--fs-group"},
        {OPTION_FS_GROUP_POLICY, "--fs-group-policy"},
        {OPTION_BANDWIDTH, "--bandwidth"},
        {OPTION_OPERATIONS, "--operations"},
        {OPTION_CONTAINER, "--container"},
    };

    for (size_t i = 0; i < array_length(names); i++)
        if (given & names[i].option)
            return names[i].name;
    return "one of these options";
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

static int take_format(const char *text, bool *ret_json, struct error *error)
{
    if (strcmp(text, "json") != 0 && strcmp(text, "text") != 0)
        return error_set(error, -EINVAL, "-o wants text or json, not \"%s\"", text);
    *ret_json = strcmp(text, "json") == 0;
    return 0;
}

/* Options of `crustctl drive` that are a text. NULL: the option is another. */
static const char **find_drive_text(int option, struct drive_options *drive, unsigned *ret_given)
{
    const struct {
        int option;
        unsigned given;
        const char **text;
    } texts[] = {
        {LONG_SANDBOX, OPTION_SANDBOX, &drive->sandbox},
        {LONG_HOST_PATH, OPTION_HOST_PATH, &drive->host_path},
        {LONG_VM_PATH, OPTION_VM_PATH, &drive->vm_path},
        {LONG_TYPE, OPTION_TYPE, &drive->fs_type},
        {LONG_FS_GROUP, OPTION_FS_GROUP, &drive->fs_group},
        {LONG_FS_GROUP_POLICY, OPTION_FS_GROUP_POLICY, &drive->fs_group_policy},
        {LONG_BANDWIDTH, OPTION_BANDWIDTH, &drive->bandwidth},
        {LONG_OPERATIONS, OPTION_OPERATIONS, &drive->operations},
    };

    for (size_t i = 0; i < array_length(texts); i++)
        if (texts[i].option == option) {
            *ret_given |= texts[i].given;
            return texts[i].text;
        }
    return NULL;
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

static int take_drive_option(int option, struct options *options, struct error *error)
{
    struct drive_options *drive = &options->drive;
    const char **text = find_drive_text(option, drive, &options->given);

    if (text) {
        *text = optarg;
        return 0;
    }
    switch (option) {
    case LONG_WRITABLE:
        options->given |= OPTION_WRITABLE;
        drive->writable = true;
        return 0;
    case LONG_FSCK:
        options->given |= OPTION_FSCK;
        drive->fsck = true;
        return 0;
    case LONG_OPTION:
        options->given |= OPTION_OPTION;
        return add_text("--option", drive->option, &drive->options, array_length(drive->option),
                        error);
    case LONG_CONTAINER:
        options->given |= OPTION_CONTAINER;
        return add_text("--container", drive->container, &drive->containers,
                        array_length(drive->container), error);
    default:
        return error_set(error, -EINVAL, "bad option");
    }
}

static int take_option(int option, struct options *options, struct error *error)
{
    switch (option) {
    case LONG_ROOT:
        options->root = optarg;
        return *optarg ? 0 : error_set(error, -EINVAL, "--root wants a directory");
    case LONG_CONFIG:
        options->config_file = optarg;
        return 0;
    case 'o':
        return take_format(optarg, &options->json, error);
    case LONG_BLOCKED:
        options->given |= OPTION_BLOCKED;
        return 0;
    case LONG_STALLED:
        options->given |= OPTION_STALLED;
        return 0;
    case LONG_NOT_RESIZABLE:
        options->given |= OPTION_NOT_RESIZABLE;
        return 0;
    case 'a':
        options->given |= OPTION_ALL;
        return 0;
    case 'n':
        options->given |= OPTION_LINES;
        return take_number("-n", optarg, &options->lines, error);
    case 'f':
        options->given |= OPTION_FOLLOW;
        return 0;
    case LONG_FOR:
        options->given |= OPTION_FOR;
        options->wanted_state = optarg;
        return 0;
    case LONG_TIMEOUT:
        options->given |= OPTION_TIMEOUT;
        return take_number("--timeout", optarg, &options->timeout_seconds, error);
    case LONG_DRY_RUN:
        options->given |= OPTION_DRY_RUN;
        return 0;
    case LONG_VOLUME_PATH:
        options->given |= OPTION_VOLUME_PATH;
        options->volume_path = optarg;
        return 0;
    case LONG_MOUNT_INFO:
        options->given |= OPTION_MOUNT_INFO;
        options->mount_info = optarg;
        return 0;
    case LONG_SIZE:
        options->given |= OPTION_SIZE;
        options->size = optarg;
        return 0;
    case LONG_VERSION:
        options->version = true;
        return 0;
    case 'h':
        options->help = true;
        return 0;
    default:
        return take_drive_option(option, options, error);
    }
}

/* getopt's own words, but without printing: optind is already past a long option. */
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
    *ret_options = options;
    return 0;
}
