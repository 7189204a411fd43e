/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the command line, by getopt_long(3), which lets options stand anywhere. */
#include "crustctl/crustctl.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/quantity.h"
#include "model/reason.h"

/* How an option's value is taken. GIVEN and FLAG have none. */
enum kind { GIVEN, FLAG, TEXT, NUMBER, FORMAT, LIST };

#define MEMBER(member) offsetof(struct options, member)

static const struct row {
    const char *name; /* errors show it */
    const char *word;
    int letter;
    enum kind kind;
    unsigned given;
    size_t member;      /* of struct options; GIVEN: none */
    size_t count, most; /* LIST: how many there are, and may be */
} rows[] = {
    {"--root", "root", 0, TEXT, 0, MEMBER(root), 0, 0},
    {"--config", "config", 0, TEXT, 0, MEMBER(config_file), 0, 0},
    {"-o", "output", 'o', FORMAT, 0, 0, 0, 0},
    {"--blocked", "blocked", 0, GIVEN, OPTION_BLOCKED, 0, 0, 0},
    {"--stalled", "stalled", 0, GIVEN, OPTION_STALLED, 0, 0, 0},
    {"--not-resizable", "not-resizable", 0, GIVEN, OPTION_NOT_RESIZABLE, 0, 0, 0},
    {"--all", "all", 'a', GIVEN, OPTION_ALL, 0, 0, 0},
    {"-n", "lines", 'n', NUMBER, OPTION_LINES, MEMBER(lines), 0, 0},
    {"-f", "follow", 'f', GIVEN, OPTION_FOLLOW, 0, 0, 0},
    {"--for", "for", 0, TEXT, OPTION_FOR, MEMBER(wanted_state), 0, 0},
    {"--timeout", "timeout", 0, NUMBER, OPTION_TIMEOUT, MEMBER(timeout_seconds), 0, 0},
    {"--dry-run", "dry-run", 0, GIVEN, OPTION_DRY_RUN, 0, 0, 0},
    {"--problems", "problems", 0, GIVEN, OPTION_PROBLEMS, 0, 0, 0},
    {"--volume-path", "volume-path", 0, TEXT, OPTION_VOLUME_PATH, MEMBER(volume_path), 0, 0},
    {"--mount-info", "mount-info", 0, TEXT, OPTION_MOUNT_INFO, MEMBER(mount_info), 0, 0},
    {"--size", "size", 0, TEXT, OPTION_SIZE, MEMBER(size), 0, 0},
    {"--sandbox", "sandbox", 0, TEXT, OPTION_DRIVE, MEMBER(drive.sandbox), 0, 0},
    {"--host-path", "host-path", 0, TEXT, OPTION_DRIVE, MEMBER(drive.host_path), 0, 0},
    {"--vm-path", "vm-path", 0, TEXT, OPTION_DRIVE, MEMBER(drive.vm_path), 0, 0},
    {"--type", "type", 0, TEXT, OPTION_DRIVE, MEMBER(drive.fs_type), 0, 0},
    {"--option", "option", 0, LIST, OPTION_DRIVE, MEMBER(drive.option), MEMBER(drive.options),
     DRIVE_OPTIONS},
    {"--writable", "writable", 0, FLAG, OPTION_DRIVE, MEMBER(drive.writable), 0, 0},
    {"--fsck", "fsck", 0, FLAG, OPTION_DRIVE, MEMBER(drive.fsck), 0, 0},
    {"--fs-group", "fs-group", 0, TEXT, OPTION_DRIVE, MEMBER(drive.fs_group), 0, 0},
    {"--fs-group-policy", "fs-group-policy", 0, TEXT, OPTION_DRIVE, MEMBER(drive.fs_group_policy),
     0, 0},
    {"--bandwidth", "bandwidth", 0, TEXT, OPTION_LIMITS, MEMBER(drive.bandwidth), 0, 0},
    {"--operations", "operations", 0, TEXT, OPTION_LIMITS, MEMBER(drive.operations), 0, 0},
    {"--container", "container", 0, LIST, OPTION_DRIVE, MEMBER(drive.container),
     MEMBER(drive.containers), DRIVE_CONTAINERS_MOST},
    {"--version", "version", 0, FLAG, 0, MEMBER(version), 0, 0},
    {"--help", "help", 'h', FLAG, 0, MEMBER(help), 0, 0},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]), LONG = 256 };

const char *options_find_refused(const struct options *options, unsigned allowed)
{
    for (unsigned i = 0; i < ROWS; i++)
        if ((options->rows & 1U << i) && (rows[i].given & ~allowed))
            return rows[i].name;
    return options->given & ~allowed & OPTION_WIDE ? "-o wide" : NULL;
}

static int take_digits(const char *text, uint64_t most, uint64_t *ret_number)
{
    char *end = NULL;

    errno = 0;
    *ret_number = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno || *ret_number > most ? -EINVAL : 0;
}

static int take_option(const struct row *row, struct options *options, struct error *error)
{
    void *member = (char *)options + row->member;
    unsigned *count = (void *)((char *)options + row->count);
    uint64_t number = 0;

    options->given |= row->given;
    options->rows |= 1U << (row - rows);
    switch (row->kind) {
    case GIVEN:
        break;
    case FLAG:
        *(bool *)member = true;
        break;
    case TEXT:
        *(const char **)member = optarg;
        break;
    case NUMBER:
        if (take_digits(optarg, 1000000000, &number) < 0)
            return error_set(error, -EINVAL, "%s wants a number, not \"%s\"", row->name, optarg);
        *(int64_t *)member = (int64_t)number;
        break;
    case FORMAT:
        options->json = strcmp(optarg, "json") == 0;
        options->given &= ~(unsigned)OPTION_WIDE;
        if (strcmp(optarg, "wide") == 0)
            options->given |= OPTION_WIDE;
        else if (!options->json && strcmp(optarg, "text") != 0)
            return error_set(error, -EINVAL, "-o wants text, wide or json, not \"%s\"", optarg);
        break;
    case LIST:
        if (*count == row->most)
            return error_set(error, -EINVAL, "%s is given more than %zu times", row->name,
                             row->most);
        ((const char **)member)[(*count)++] = optarg;
        break;
    }
    return 0;
}

/* getopt's own message, but not printed. optind is already past a long option. */
static int refuse_option(int option, int argc, char *argv[], struct error *error)
{
    const char *word = optind > 0 && optind <= argc ? argv[optind - 1] : "";

    if (option == ':')
        return error_set(error, -EINVAL, "%s wants a value", word);
    if (optopt > 0 && optopt < LONG)
        return error_set(error, -EINVAL, "there is no option -%c", optopt);
    if (optopt >= LONG)
        return error_set(error, -EINVAL, "%.*s takes no value", (int)strcspn(word, "="), word);
    return error_set(error, -EINVAL, "there is no option %s", word);
}

int options_parse(int argc, char *argv[], struct options *ret_options, struct error *error)
{
    struct options options = {.root = config_root_of_environment(),
                              .config_file = config_file_of_environment(),
                              .timeout_seconds = 60};
    struct option words[ROWS + 1] = {0};
    int option, result = 0;

    for (unsigned i = 0; i < ROWS; i++)
        words[i] = (struct option){
            rows[i].word, rows[i].kind > FLAG ? required_argument : no_argument, NULL, LONG + i};
    opterr = 0;
    optind = 0; /* glibc: begin anew */
    while (result == 0 && (option = getopt_long(argc, argv, ":o:an:fh", words, NULL)) != -1) {
        unsigned row = 0;

        if (option == '?' || option == ':')
            return refuse_option(option, argc, argv, error);
        while (option != rows[row].letter && option != (int)(LONG + row))
            row++;
        result = take_option(&rows[row], &options, error);
    }
    if (result == 0 && !*options.root)
        result = error_set(error, -EINVAL, "--root wants a directory");
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

/* ---- states --------------------------------------------------------------------------------- */

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

/* ---- drive options -------------------------------------------------------------------------- */

/* From the command line's own forms (LIMIT, PLACE) to JSON. What a field may hold is the daemon's
 * to check. */

enum { PARTS = 4, PART_BYTES = 1200 };

/* A text in pieces; their number, or -EINVAL: there are more, or one is too long. */
static int split(const char *text, char separator, char ret_parts[static PARTS][PART_BYTES])
{
    for (int count = 0; count < PARTS; count++) {
        const size_t length = (size_t)(strchrnul(text, separator) - text);

        if (length >= PART_BYTES)
            return -EINVAL;
        memcpy(ret_parts[count], text, length);
        ret_parts[count][length] = '\0';
        if (!text[length])
            return count + 1;
        text += length + 1;
    }
    return -EINVAL;
}

/* "SIZE/MS" or "SIZE/MS/BURST"; NULL and "none": no limit. */
static int append_limit(const char *name, const char *option, const char *text, struct buffer *json,
                        struct error *error)
{
    char parts[PARTS][PART_BYTES];
    uint64_t size = 0, refill_ms = 0, burst = 0;
    int count;

    if (!text || strcmp(text, "none") == 0)
        return 0;
    count = split(text, '/', parts);
    if (count < 2 || count > 3 || quantity_parse(parts[0], &size) < 0 || size == 0 ||
        take_digits(parts[1], UINT64_MAX, &refill_ms) < 0 || refill_ms == 0 ||
        (count == 3 && quantity_parse(parts[2], &burst) < 0))
        return error_set(error, -EINVAL, "%s wants SIZE/MS, SIZE/MS/BURST or none, not \"%s\"",
                         option, text);
    json_append_name(json, name);
    return buffer_append_format(json,
                                "{\"size\":%" PRIu64 ",\"refill_time_ms\":%" PRIu64
                                ",\"one_time_burst\":%" PRIu64 "}",
                                size, refill_ms, burst);
}

static int append_limiter(const struct drive_options *options, struct buffer *json,
                          struct error *error)
{
    int r;

    json_append_name(json, "rate_limiter");
    buffer_append_text(json, "{");
    r = append_limit("bandwidth", "--bandwidth", options->bandwidth, json, error);
    if (r == 0)
        r = append_limit("ops", "--operations", options->operations, json, error);
    return r < 0 ? r : buffer_append_text(json, "}");
}

/* "ID:PATH", "ID:PATH:SUBPATH", either with ":ro" after it */
static int append_place(const char *text, struct buffer *json, struct error *error)
{
    char parts[PARTS][PART_BYTES];
    int count = split(text, ':', parts);
    const bool is_read_only = count > 2 && strcmp(parts[count - 1], "ro") == 0;

    count -= is_read_only;
    if (count < 2 || count > 3)
        return error_set(error, -EINVAL, "--container wants ID:PATH[:SUBPATH][:ro], not \"%s\"",
                         text);
    buffer_append_text(json, "{");
    json_append_member(json, "container_id", parts[0]);
    json_append_member(json, "path", parts[1]);
    json_append_member(json, "sub_path", count == 3 ? parts[2] : NULL);
    return buffer_append_text(json, is_read_only ? ",\"read_only\":true}" : "}");
}

int drive_options_append_attach(const struct drive_options *options, const char *drive_id,
                                struct buffer *json, struct error *error)
{
    const char *missing = !options->sandbox     ? "--sandbox"
                          : !options->host_path ? "--host-path"
                          : !options->vm_path   ? "--vm-path"
                          : !options->fs_type   ? "--type"
                                                : NULL;
    uint64_t group;
    int r;

    if (missing)
        return error_set(error, -EINVAL, "drive attach wants %s", missing);
    if (options->fs_group && take_digits(options->fs_group, UINT64_MAX, &group) < 0)
        return error_set(error, -EINVAL, "--fs-group wants a number, not \"%s\"",
                         options->fs_group);
    buffer_append_text(json, "{");
    json_append_member(json, "drive_id", drive_id);
    json_append_member(json, "sandbox_id", options->sandbox);
    json_append_member(json, "host_path", options->host_path);
    json_append_member(json, "vm_path", options->vm_path);
    json_append_member(json, "filesystem_type", options->fs_type);
    json_append_member(json, "fsck", options->fsck ? "preen" : "none");
    json_append_member(json, "fs_group_change_policy", options->fs_group_policy);
    if (options->fs_group)
        buffer_append_format(json, ",\"fs_group\":%" PRIu64, group);
    buffer_append_format(json, ",\"is_writable\":%s,\"options\":[",
                         options->writable ? "true" : "false");
    for (unsigned i = 0; i < options->options; i++) {
        buffer_append_text(json, i > 0 ? "," : "");
        json_append_string(json, options->option[i]);
    }
    buffer_append_text(json, "]");
    r = append_limiter(options, json, error);
    buffer_append_text(json, ",\"containers\":[");
    for (unsigned i = 0; r == 0 && i < options->containers; i++) {
        buffer_append_text(json, i > 0 ? "," : "");
        r = append_place(options->container[i], json, error);
    }
    return r < 0 ? r : buffer_append_text(json, "]}");
}

int drive_options_append_limits(const struct drive_options *options, struct buffer *json,
                                struct error *error)
{
    int r;

    if (!options->bandwidth && !options->operations)
        return error_set(error, -EINVAL,
                         "drive limits wants --bandwidth or --operations; none removes a limit");
    buffer_append_text(json, "{");
    r = append_limiter(options, json, error);
    return r < 0 ? r : buffer_append_text(json, "}");
}
