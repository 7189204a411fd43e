/* SPDX-License-Identifier: Apache-2.0 */
/* command_metadata.c - `direct-volume add` and `remove`, as kata-runtime has them; gc and restore.
 *
 * Flags, output and exit codes of `direct-volume` are kata-runtime's (4.1.0): 0, or 1 with a
 * sentence on stderr. add and remove write to the same places as kata-runtime, in place and without
 * a daemon, as src/runtime/pkg/direct-volume/utils.go does: a directory 0700 by the padded
 * base64url of the path, in it mountInfo.json 0600 with the caller's bytes; remove deletes it, and
 * succeeds if there is none. stats and resize ask crustd, where kata-runtime asks a shim: so a
 * resize also reaches the hypervisor.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "crustctl/crustctl.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/encode.h"
#include "lib/json.h"
#include "lib/path.h"
#include "model/stale_reason.h"

enum { DIRECTORY_MODE = 0700, FILE_MODE = 0600 };

static const char mount_info_name[] = "mountInfo.json";

/* The volume's name among the metadata directories; an exit code. */
static int name_volume(const struct session *session, char ret_name[BASE64URL_NAME_CHARS + 1])
{
    const char *path = session->options->volume_path;

    if (!path || !*path)
        return session_fail(EXIT_FAILED, "--volume-path is missing");
    if (strlen(path) > BASE64URL_PATH_BYTES)
        return session_fail(EXIT_FAILED, "--volume-path: %s", strerror(ENAMETOOLONG));
    base64url_encode(path, strlen(path), ret_name);
    return EXIT_DONE;
}

/* A text, or a list or object of texts. As Go's decoder reads it: null counts as absent. */
static bool is_of_texts(const cJSON *value, int type)
{
    const cJSON *one;

    if (!value || cJSON_IsNull(value))
        return true;
    cJSON_ArrayForEach(one, value)
    {
        if (!cJSON_IsString(one))
            return false;
    }
    return (value->type & type) != 0;
}

/* The runtime would not start a container with a volume of another type, and crustd would not
 * resize it. */
static int check_mount_info(const char *text)
{
    static const char names[] = "volume-type device fstype options metadata";
    cleanup(json_deletep) cJSON *object = NULL;
    struct error error = {0};

    if (!text)
        return session_fail(EXIT_FAILED, "--mount-info is missing");
    if (json_read(text, strlen(text), JSON_LIMITS_MOUNT_INFO, names, &object, &error) != FILE_READ)
        return session_fail(EXIT_FAILED, "--mount-info: %s", error.text);
    if (!cJSON_IsObject(object) || !json_string(object, "device"))
        return session_fail(EXIT_FAILED, "--mount-info is no JSON object with a \"device\"");
    if (is_of_texts(json_member(object, "volume-type"), cJSON_String) &&
        is_of_texts(json_member(object, "fstype"), cJSON_String) &&
        is_of_texts(json_member(object, "metadata"), cJSON_Object) &&
        is_of_texts(json_member(object, "options"), cJSON_Array))
        return EXIT_DONE;
    return session_fail(EXIT_FAILED, "--mount-info: volume-type and fstype are texts, options a "
                                     "list and metadata an object of texts");
}

int command_direct_volume_add(struct session *session)
{
    const char *volumes = session->source.config.paths.kata_volumes;
    const char *text = session->options->mount_info;
    cleanup(fd_closep) int parent = -1, directory = -1;
    char name[BASE64URL_NAME_CHARS + 1];
    int r, code = name_volume(session, name);

    if (code == EXIT_DONE)
        code = check_mount_info(text);
    if (code != EXIT_DONE)
        return code;
    r = path_make_directories(session->source.root, volumes, DIRECTORY_MODE);
    if (r == 0)
        r = path_open_directory_in_root(session->source.root, volumes, &parent);
    if (r == 0 && mkdirat(parent, name, DIRECTORY_MODE) < 0 && errno != EEXIST)
        r = -errno;
    if (r == 0)
        r = path_open_directory_below(parent, name, &directory);
    if (r == 0)
        r = path_write_below(directory, mount_info_name, O_TRUNC, FILE_MODE, text, strlen(text));
    return r == 0
               ? EXIT_DONE
               : session_fail(EXIT_FAILED, "%s: %s", session->options->volume_path, strerror(-r));
}

/* Its files and the directory go; kata-runtime, too, makes nothing else there. */
int command_direct_volume_remove(struct session *session)
{
    cleanup(fd_closep) int parent = -1;
    char name[BASE64URL_NAME_CHARS + 1];
    struct error error = {0};
    int r, code = name_volume(session, name);

    if (code != EXIT_DONE)
        return code;
    r = path_open_directory_in_root(session->source.root, session->source.config.paths.kata_volumes,
                                    &parent);
    if (r == PATH_MISSING)
        return EXIT_DONE;
    r = r < 0 ? error_set(&error, r, "%s", strerror(-r)) : removal_run(parent, name, 1, &error);
    return r == 0 ? EXIT_DONE
                  : session_fail(EXIT_FAILED, "%s: %s", session->options->volume_path, error.text);
}

/* ---- command cleanup ------------------------------------------------------------------------ */

/* Gc and restore: stale metadata, by hand. */

/* Whether a gc would override the reason, or how long the grace time still lasts. */
static int format_wait(const cJSON *row, struct buffer *ret_text)
{
    const char *subject = json_text(row, "waits_for");
    uint64_t seconds;

    if (*subject)
        return buffer_append_format(ret_text, "for %s", subject);
    if (stale_reason_from_name(json_text(row, "reason")) == STALE_REASON_GRACE &&
        json_number(json_member(row, "evidence"), "waits_seconds", &seconds) == JSON_NUMBER)
        return buffer_append_format(ret_text, "%" PRIu64 " s", seconds);
    return 0;
}

static const struct column columns[] = {
    {.title = "ID", .key = "volume_id", .kind = COLUMN_NUMBER},
    {.title = "VOLUME", .format = row_volume_name, .minimum = 16},
    {.title = "DECISION", .key = "decision"},
    {.title = "REASON", .key = "reason"},
    {.title = "WAITS", .format = format_wait},
};

/* "reason: meaning remedy" of each reason that occurs, once. */
static void print_reasons(const cJSON *rows, unsigned width, struct buffer *out)
{
    for (unsigned i = STALE_REASON_NONE + 1; i < STALE_REASONS; i++) {
        const char *remedy = stale_reason_remedy(i);
        const cJSON *row = rows->child;
        char line[512];

        while (row && strcmp(json_text(row, "reason"), stale_reason_name(i)) != 0)
            row = row->next;
        (void)snprintf(line, sizeof(line), "%s: %s%s%s", stale_reason_name(i),
                       stale_reason_meaning(i), remedy ? " " : "", remedy ? remedy : "");
        if (row)
            display_append_wrapped(out, line, NULL, 2, width);
    }
}

int command_gc(struct session *session)
{
    struct source_request request = {
        .method = "POST",
        .target = session->options->given & OPTION_DRY_RUN ? "/v1/gc?dry_run=1" : "/v1/gc",
        .body = ""};
    cleanup(json_deletep) cJSON *rows = NULL;
    int code = session_ask(session, &request, NULL, &rows);

    if (code != EXIT_DONE || session_print_json(session, rows))
        return code;
    table_print(columns, array_length(columns), rows, session->table_width, "nothing looks stale",
                &session->out);
    buffer_append_text(&session->out, rows->child ? "\n" : "");
    print_reasons(rows, session->width, &session->out);
    return EXIT_DONE;
}

int command_restore(struct session *session)
{
    const char *id = session->options->operand[0];
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(64);
    struct source_request request = {.method = "POST", .body = ""};
    int code;

    if (!*id || id[strspn(id, "0123456789")] ||
        buffer_append_format(&target, "/v1/cleanups/%s/restore", id) < 0)
        return session_fail(EXIT_USAGE, "restore wants the number of a cleanup, not \"%s\"", id);
    request.target = buffer_text(&target);
    code = session_ask(session, &request, NULL, NULL);
    if (code == EXIT_DONE)
        buffer_append_text(&session->out, session->options->json ? "{}\n" : "restored\n");
    return code;
}
