/* SPDX-License-Identifier: Apache-2.0 */
/* crustctl.c - crustctl: reads the command line, runs one command, returns its exit code. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "crustctl/crustctl.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/log.h"

enum { SUMMARY_COLUMN = 31, OUT_BYTES = 256 * 1024 * 1024 };

/* ---- the commands --------------------------------------------------------------------------- */

const struct command commands[] = {
    {"status", "", 0, 0, "the daemon and its volumes in numbers", NULL, command_status},
    {"volumes", "", 0,
     OPTION_BLOCKED | OPTION_STALLED | OPTION_NOT_RESIZABLE | OPTION_ALL | OPTION_WIDE,
     "all volumes with their sizes and states",
     "  -o wide     also with pod and claim, and no column cut\n"
     "  --not-resizable\n"
     "              only volumes in use whose file system a resize would not reach,\n"
     "              with the first obstacle\n"
     "  --stalled   only volumes whose resize does not proceed and needs attention\n"
     "  --blocked   only volumes in the state blocked, stalled or only observed\n"
     "  -a, --all   removed volumes too\n",
     command_view},
    {"volume", "VOL", 1, 0, "one volume with its mapping, sandbox and last events", NULL,
     command_volume},
    {"sandboxes", "", 0, OPTION_ALL, "sandboxes and how crustd reaches them",
     "  -a, --all   sandboxes that are gone too\n", command_view},
    {"devices", "", 0, 0, "the devices of volumes", NULL, command_view},
    {"layers", "", 0, 0, "the lower devices under them: dm, partitions, disks", NULL, command_view},
    {"mappings", "", 0, OPTION_ALL, "which volume is on which device in which sandbox",
     "  -a, --all   past mappings too\n", command_view},
    {"resizes", "", 0, OPTION_LINES, "resizes, open and finished",
     "  -n N        only the newest N\n", command_view},
    {"cleanups", "", 0, OPTION_LINES, "stale metadata that was kept or removed, and why",
     "  -n N        only the newest N\n", command_view},
    {"journal", "", 0, OPTION_LINES | OPTION_FOLLOW, "what crustd saw and did",
     "  -n N        the newest N lines (50); 0: as many as one answer can hold\n"
     "  -f          follows the journal until interrupted\n",
     command_journal},
    {"explain", "VOL", 1, 0, "what to do about a volume, and what is known of it", NULL,
     command_explain},
    {"doctor", "", 0, OPTION_PROBLEMS, "what keeps this node from resizing volumes, and the remedy",
     "  --problems  leaves out what is well\n"
     "The daemon examines itself and its node. Without a daemon, also before an\n"
     "install, crustctl does so with its own rights. Levels: ok, note, warning, error.\n"
     "An error keeps some volume from growing or crustd from starting.\n"
     "Exit code: 0 no error, 5 at least one error, 1 nothing could be examined.\n",
     command_doctor},
    {"crust-qemu", "", 0, 0, "lists the Kata configurations that need crust-qemu",
     "Reads Kata's configurations on this node, in use or not, and lists those that\n"
     "start QEMU through crust-qemu. Run it before you remove crust-qemu: pods of a\n"
     "configuration on the list would not start. Needs no daemon.\n"
     "Exit code: 0 none, 5 at least one, or some file could not be read.\n",
     command_crust_qemu},
    {"wait", "VOL", 1, OPTION_FOR | OPTION_TIMEOUT, "waits until a volume reaches a state",
     "  --for STATE     a state, or STATE/REASON (in_sync, blocked/read_only)\n"
     "  --timeout S     seconds to wait (60)\n"
     "The volume need not exist yet. Exit code: 0 reached. On time-out: 5 the volume\n"
     "is blocked and crustd does not try again by itself, 3 there is no such volume,\n"
     "4 the daemon is gone, else 6.\n",
     command_wait},
    {"gc", "", 0, OPTION_DRY_RUN, "removes stale metadata now, as far as the evidence allows",
     "  --dry-run   only says what would be removed, and why the rest is kept\n"
     "Confirms cleanups that wait because too many came at once (reason breaker), and\n"
     "ignores cleanup.max_per_minute. It overrides no evidence: metadata that is kept\n"
     "for another reason stays. Removed metadata is in the trash for\n"
     "cleanup.keep_hours.\n",
     command_gc},
    {"restore", "CLEANUP_ID", 1, 0, "puts back what a cleanup removed, byte for byte",
     "It stays until its content or its sandbox changes. crustctl cleanups lists the\n"
     "ids. Exit code: 3 there is no such cleanup, 5 its place is taken or its bytes\n"
     "are gone.\n",
     command_restore},
    {"resize", "VOL", 1, 0, "resizes a volume in its VM and waits for the result",
     "Waits at most two minutes; a resize that was begun goes on after that.\n"
     "Exit code: 0 the file system fills the device, 3 there is no such volume,\n"
     "5 this node cannot do it as it is, 6 not now, ask again.\n",
     command_resize},
    {"stats", "VOL", 1, 0, "usage and condition, as the guest reports them", NULL, command_stats},
    {"crust stats", "TARGET", 1, 0, "the same as JSON: KEP-2857's runtime CLI", NULL,
     command_stats},
    {"crust resize", "TARGET MIN MAX", 3, 0, "resizes a volume for a CSI driver; 0: any size",
     "TARGET is a volume path. The device must have at least MIN and at most MAX, in\n"
     "bytes or as Kubernetes quantities (8Gi). Prints {\"capacity_bytes\":N}.\n",
     command_resize},
    {"direct-volume add", "", 0, OPTION_VOLUME_PATH | OPTION_MOUNT_INFO,
     "writes a volume's metadata, as kata-runtime does",
     "  --volume-path P   where the volume would be published\n"
     "  --mount-info J    its mountInfo.json\n",
     command_direct_volume_add},
    {"direct-volume remove", "", 0, OPTION_VOLUME_PATH, "removes a volume's metadata",
     "  --volume-path P   where the volume would be published\n", command_direct_volume_remove},
    {"direct-volume stats", "", 0, OPTION_VOLUME_PATH, "stats as JSON",
     "  --volume-path P   where the volume would be published\n", command_stats},
    {"direct-volume resize", "", 0, OPTION_VOLUME_PATH | OPTION_SIZE,
     "resizes a volume; exit code 0 or 1",
     "  --volume-path P   where the volume would be published\n"
     "  --size N          the device must have at least so much: bytes, or 8Gi, 500M\n",
     command_resize},
    {"fs get-stats", "POD DEVICE", 2, 0, "stats of the volume on a host device of a sandbox", NULL,
     command_fs_stats},
    {"fs resize", "POD DEVICE SIZE", 3, 0, "resizes the volume on a host device of a sandbox",
     "The device must have at least SIZE: bytes, or 8Gi, 500M.\n", command_fs_resize},
    {"drives", "", 0, OPTION_ALL, "disks that clients attached to running VMs",
     "  -a, --all   drives that have ended too\n", command_drives},
    {"drive list", "", 0, OPTION_ALL, "the same as drives",
     "  -a, --all   drives that have ended too\n", command_drives},
    {"drive attach", "DRIVE_ID", 1, OPTION_DRIVE | OPTION_LIMITS,
     "mounts a disk of this node in a running VM",
     "  --sandbox ID         the sandbox whose VM gets the disk\n"
     "  --host-path P        a block device or a regular file\n"
     "  --vm-path P          where it is mounted in the guest\n"
     "  --type FS            its file system\n"
     "  --option O           a mount option; may be repeated\n"
     "  --writable           without it the disk is read-only\n"
     "  --fsck               repairs the file system first, if that needs no question\n"
     "  --fs-group GID       the group that files are given\n"
     "  --fs-group-policy W  Always, or OnRootMismatch\n"
     "  --bandwidth LIMIT    bytes\n"
     "  --operations LIMIT   operations\n"
     "  --container PLACE    a running container that gets it too; may be repeated\n"
     "DRIVE_ID is a name of your choice. The first four options are required. LIMIT is\n"
     "SIZE/MS, at most SIZE in each MS milliseconds, or SIZE/MS/BURST, once as much as\n"
     "BURST more; SIZE may be a quantity (10Mi). PLACE is ID:PATH or ID:PATH:SUBPATH;\n"
     "with :ro at its end it is read-only there.\n"
     "Waits at most two minutes; what was begun goes on after that, and the same\n"
     "command again waits for it. Exit code: 0 the guest has mounted it, 3 there is no\n"
     "such sandbox or disk, 5 refused, 6 not now, ask again.\n",
     command_drive_attach},
    {"drive detach", "DRIVE_ID", 1, 0, "unmounts a drive and frees its disk",
     "Waits at most two minutes; what was begun goes on after that. A drive that is\n"
     "not there counts as detached. Exit code: 0 the disk is free on the host, 5 the\n"
     "guest still uses it, and it stays mounted, 6 not now, ask again.\n",
     command_drive_detach},
    {"drive limits", "DRIVE_ID", 1, OPTION_LIMITS, "replaces the limits of a drive",
     "  --bandwidth LIMIT    bytes\n"
     "  --operations LIMIT   operations\n"
     "LIMIT is as with drive attach, or none. A limit that is not given is removed.\n",
     command_drive_limits},
    {"resync", "", 0, 0, "observes everything again, and tries what waits", NULL, command_resync},
    {"health", "", 0, 0, "exit code 0: daemon ready, 1: not ready, 4: no daemon", NULL,
     command_health},
    {0},
};

const struct command *command_find(const char *name)
{
    for (const struct command *command = commands; command->name; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}

static void drop_operand(struct options *options)
{
    options->operands--;
    memmove(options->operand, options->operand + 1, options->operands * sizeof(char *));
}

const struct command *command_choose(struct options *options)
{
    const char *first = options->command;
    const struct command *command;
    char name[64];

    if (!first || options->operands == 0 || command_find(first))
        return first ? command_find(first) : NULL;
    (void)snprintf(name, sizeof(name), "%s %s", first, options->operand[0]);
    command = command_find(name);
    if (command)
        drop_operand(options);
    return command;
}

int command_check(const struct command *command, const struct options *options, struct error *error)
{
    const char *refused = options_find_refused(options, command->options);

    if (refused)
        return error_set(error, -EINVAL, "%s does not take %s", command->name, refused);
    if (options->operands < command->operand_count)
        return error_set(error, -EINVAL, "%s wants %s", command->name, command->operands);
    if (options->operands > command->operand_count)
        return error_set(error, -EINVAL, "%s: unexpected argument \"%s\"", command->name,
                         options->operand[command->operand_count]);
    if ((command->options & OPTION_FOR) && !options->wanted_state)
        return error_set(error, -EINVAL, "%s wants --for STATE", command->name);
    return 0;
}

/* ---- help ---------------------------------------------------------------------------------- */

static void print_line(FILE *stream, const struct command *command)
{
    cleanup(buffer_done) struct buffer line = BUFFER_INIT(4096);
    char name[64], lead[sizeof(name) + SUMMARY_COLUMN];

    (void)snprintf(name, sizeof(name), "%s %s", command->name, command->operands);
    (void)snprintf(lead, sizeof(lead), "  %-*s", SUMMARY_COLUMN - 2, name);
    (void)display_append_wrapped(&line, command->summary, lead, SUMMARY_COLUMN, display_columns());
    (void)fputs(buffer_text(&line), stream);
}

static void print_usage(FILE *stream)
{
    (void)fputs("usage: crustctl [--root DIR] [--config FILE] [-o text|wide|json] COMMAND\n\n"
                "Shows what crustd knows about the volumes of micro-VMs on this node, and why.\n\n",
                stream);
    for (const struct command *command = commands; command->name; command++)
        print_line(stream, command);
    (void)fputs("\n"
                "VOL is a volume path, a metadata key, a PV name, a CSI volume handle or a\n"
                "volume_id, which '#7' is in any case.\n"
                "  --root DIR     the node's root is DIR ($" CONFIG_ROOT_VARIABLE ")\n"
                "  --config FILE  the daemon's configuration ($" CONFIG_FILE_VARIABLE ", or\n"
                "                 " CONFIG_DEFAULT_FILE ")\n"
                "  -o FORMAT      text, wide (of volumes), or json: the audit views' columns\n"
                "  --version, --help; COMMAND --help describes one command\n\n"
                "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 daemon not reachable, 5\n"
                "refused or blocked until somebody changes something, 6 not now: ask again.\n",
                stream);
}

/* What may follow a first word that has no meaning by itself, as "fs"; whether something may.
 * stream NULL: nothing is printed. */
static bool print_family(FILE *stream, const char *name)
{
    const size_t length = strlen(name);
    bool is_family = false;

    for (const struct command *command = commands; command->name; command++) {
        if (strncmp(command->name, name, length) != 0 || command->name[length] != ' ')
            continue;
        if (stream && !is_family)
            (void)fprintf(stream, "crustctl %s is one of\n", name);
        if (stream)
            print_line(stream, command);
        is_family = true;
    }
    return is_family;
}

static int refuse(const char *text)
{
    (void)fprintf(stderr, "crustctl: %s\nTry crustctl --help.\n", text);
    return EXIT_USAGE;
}

/* The command that people mean by another word, or by the beginning of its name; NULL: none. */
static const char *meant_by(const char *word)
{
    static const char *const others[][2] = {
        {"events", "journal"},  {"log", "journal"},   {"logs", "journal"}, {"vol", "volumes"},
        {"ls", "volumes"},      {"list", "volumes"},  {"get", "volumes"},  {"describe", "explain"},
        {"why", "explain"},     {"expand", "resize"}, {"grow", "resize"},  {"check", "doctor"},
        {"history", "resizes"}, {"pods", "sandboxes"}};

    for (size_t i = 0; i < array_length(others); i++)
        if (strcmp(others[i][0], word) == 0)
            return others[i][1];
    for (const struct command *command = commands; command->name; command++)
        if (strlen(word) > 1 && strncmp(command->name, word, strlen(word)) == 0)
            return command->name;
    return NULL;
}

/* "crust burn": the second word is wrong. */
static int refuse_command(const struct options *options)
{
    const bool is_family = print_family(NULL, options->command);
    const bool has_word = is_family && options->operands > 0;

    if (!is_family || has_word)
        (void)fprintf(stderr, "crustctl: there is no command \"%s%s%s\"\n", options->command,
                      has_word ? " " : "", has_word ? options->operand[0] : "");
    if (is_family)
        (void)print_family(stderr, options->command);
    else if (meant_by(options->command))
        (void)fprintf(stderr, "Did you mean \"%s\"?\n", meant_by(options->command));
    else
        (void)fputs("Try crustctl --help.\n", stderr);
    return EXIT_USAGE;
}

/* --help, or the command help. */
static int show_help(const struct options *options, const struct command *command)
{
    if (command)
        (void)printf("usage: crustctl %s%s%s%s\n\n%s\n%s", command->name,
                     *command->operands ? " " : "", command->operands,
                     command->options ? " [options]" : "", command->summary,
                     command->help ? command->help : "");
    else if (!options->command)
        print_usage(stdout);
    else if (options->operands > 0 || !print_family(stdout, options->command))
        return refuse_command(options);
    return EXIT_DONE;
}

/* ---- a session ----------------------------------------------------------------------------- */

int session_flush(struct session *session)
{
    const int result = buffer_error(&session->out);
    const size_t length = session->out.length;
    const size_t written = fwrite(buffer_text(&session->out), 1, length, stdout);

    buffer_clear(&session->out);
    return written != length || fflush(stdout) != 0 ? -EIO : result;
}

int session_end(struct session *session, int code)
{
    if (buffer_error(&session->out) < 0)
        code = session_fail_result(buffer_error(&session->out), NULL);
    if (session_flush(session) < 0 && code == EXIT_DONE)
        code = EXIT_FAILED;
    return code;
}

int session_fail(int code, const char *format, ...)
{
    va_list arguments;

    (void)fputs("crustctl: ", stderr);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    return code;
}

int session_fail_result(int result, const struct error *error)
{
    return session_fail(result == SOURCE_UNREACHABLE ? EXIT_UNREACHABLE : EXIT_FAILED, "%s",
                        error && *error->text ? error->text : strerror(result < 0 ? -result : EIO));
}

bool session_print_json(struct session *session, const cJSON *value)
{
    if (session->options->json)
        row_print_json(value, &session->out);
    return session->options->json;
}

int session_rows(struct session *session, const struct store_query *query, cJSON **ret_rows)
{
    struct error error = {0};
    const int result = source_rows(&session->source, query, ret_rows, &error);

    return result == 0 ? EXIT_DONE : session_fail_result(result, &error);
}

int session_ask(struct session *session, struct source_request *request, struct buffer *ret_text,
                cJSON **ret_answer)
{
    cleanup(buffer_done) struct buffer own = BUFFER_INIT(SOURCE_ANSWER_BYTES);
    struct buffer *text = ret_text ? ret_text : &own;
    struct error error = {0};
    int code, result = source_ask(&session->source, request, text, &error);

    if (result == 0 && ret_answer)
        result = source_parse(text, ret_answer, &error);
    if (result == 0)
        return EXIT_DONE;
    code = session_fail_result(result, &error);
    if (result != SOURCE_REFUSED)
        return code;
    switch (request->status) {
    case 404:
        return EXIT_NOT_FOUND;
    case 429: /* RESOURCE_EXHAUSTED */
    case 503: /* UNAVAILABLE */
    case 504: /* DEADLINE_EXCEEDED */
        return EXIT_NOT_NOW;
    case 500:
        return EXIT_FAILED;
    default:
        return EXIT_BLOCKED;
    }
}

int session_refuse_ambiguous(const char *name, const cJSON *rows)
{
    static const char *const keys[] = {"pv", "volume_handle", "target_path"};
    const cJSON *row;

    (void)session_fail(EXIT_USAGE,
                       "\"%s\" is more than one volume; name one by its id, as '#7':", name);
    cJSON_ArrayForEach(row, rows)
    {
        cleanup(buffer_done) struct buffer line = BUFFER_INIT(64 * 1024);

        buffer_append_format(&line, "  #%" PRIu64, row_number(row, "volume_id"));
        for (size_t i = 0; i < array_length(keys); i++) {
            const char *text = json_text(row, keys[i]);

            buffer_append_text(&line, "  ");
            display_append(&line, *text ? text : "-");
        }
        (void)fprintf(stderr, "%s%s\n", buffer_text(&line),
                      *json_text(row, "removed_at") ? "  (removed)" : "");
    }
    return EXIT_USAGE;
}

int session_find_volume(struct session *session, const char *name, cJSON **ret_row)
{
    const struct store_query query = {.view = STORE_VIEW_VOLUMES, .volume = name};
    cleanup(json_deletep) cJSON *rows = NULL;
    const int code = session_rows(session, &query, &rows);

    if (code != EXIT_DONE)
        return code;
    if (!rows->child)
        return session_fail(EXIT_NOT_FOUND, "there is no volume \"%s\"", name);
    if (rows->child->next)
        return session_refuse_ambiguous(name, rows);
    *ret_row = cJSON_DetachItemFromArray(rows, 0);
    return 0;
}

static int run(const struct command *command, const struct options *options)
{
    struct session session = {.options = options,
                              .width = display_columns(),
                              .table_width = display_table_columns(),
                              .out = BUFFER_INIT(OUT_BYTES)};
    const char *fault = session.source.config_fault.text;
    struct error error = {0};
    int code;

    if (source_open(&session.source, options->root, options->config_file, &error) < 0) {
        source_close(&session.source);
        return session_fail(EXIT_USAGE, "%s", error.text);
    }
    /* A daemon that runs keeps the configuration that it has, and a probe asks after the daemon.
     * The doctor reports the fault itself. */
    if (*fault && command->run != command_doctor)
        (void)session_fail(0, "%s; going on without this file", fault);
    code = session_end(&session, command->run(&session));
    buffer_done(&session.out);
    source_close(&session.source);
    return code;
}

int main(int argc, char *argv[])
{
    const struct command *command;
    struct options options;
    struct error error = {0};
    int code;

    display_init();
    log_configure(LOG_ERROR, LOG_LOGFMT); /* that its own loop waited is no warning to anybody */
    if (options_parse(argc, argv, &options, &error) < 0)
        return refuse(error.text);
    if (options.version) {
        (void)printf("crustctl %s\n", CRUST_VERSION);
        return EXIT_DONE;
    }
    if (options.command && strcmp(options.command, "help") == 0) { /* as in "help resize" */
        options.help = true;
        options.command = options.operands > 0 ? options.operand[0] : NULL;
        if (options.operands > 0)
            drop_operand(&options);
    }
    command = command_choose(&options);
    if (options.help)
        return show_help(&options, command);
    if (!options.command) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (!command)
        return refuse_command(&options);
    code =
        command_check(command, &options, &error) < 0 ? refuse(error.text) : run(command, &options);
    /* kata-runtime knows no other failure than 1. */
    return code && strncmp(command->name, "direct-volume ", 14) == 0 ? EXIT_FAILED : code;
}
