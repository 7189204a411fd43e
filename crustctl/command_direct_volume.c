/* SPDX-License-Identifier: Apache-2.0 */
/* command_direct_volume.c - kata-runtime's `direct-volume`, for CSI drivers that shell out to it.
 *
 * Flags, output and exit codes are kata-runtime's (4.1.0): 0, or 1 with a sentence on stderr. add
 * and remove write to the same places as kata-runtime, in place and without a daemon, as
 * src/runtime/pkg/direct-volume/ utils.go does: a directory 0700 by the padded base64url of the
 * path, in it mountInfo.json 0600 with the caller's bytes; remove deletes it, and succeeds if there
 * is none. stats and resize ask crustd, where kata-runtime asks a shim: so a resize also reaches
 * the hypervisor.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crustctl/command.h"
#include "lib/base64url.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/json.h"
#include "lib/path.h"

enum { DIRECTORY_MODE = 0700, FILE_MODE = 0600 };

static const char mount_info_name[] = "mountInfo.json";

static int fail(const char *what, int result)
{
    (void)fprintf(stderr, "crustctl: %s%s%s\n", what, result < 0 ? ": " : "",
                  result < 0 ? strerror(-result) : "");
    return EXIT_FAILED;
}

/* The volume's name among the metadata directories; an exit code. */
static int name_volume(const struct session *session, char ret_name[BASE64URL_NAME_CHARS + 1])
{
    const char *path = session->options->volume_path;

    if (!path || !*path)
        return fail("--volume-path is missing", 0);
    if (strlen(path) > BASE64URL_PATH_BYTES)
        return fail("--volume-path", -ENAMETOOLONG);
    base64url_encode(path, strlen(path), ret_name);
    return EXIT_DONE;
}

static int open_volumes(const struct session *session, int *ret_fd)
{
    return path_open_directory_in_root(source_root(session->source),
                                       source_config(session->source)->paths.kata_volumes, ret_fd);
}

/* ---- add ---- */

/* As Go's decoder reads it: null counts as absent. */
static bool is_text(const cJSON *value)
{
    return !value || cJSON_IsNull(value) || cJSON_IsString(value);
}

static bool are_texts(const cJSON *list)
{
    const cJSON *value;

    cJSON_ArrayForEach(value, list)
    {
        if (!cJSON_IsString(value))
            return false;
    }
    return true;
}

/* The runtime would not start a container with a volume of another type, and crustd would not
 * resize it. */
static bool has_its_types(const cJSON *object)
{
    const cJSON *metadata = json_member(object, "metadata"),
                *options = json_member(object, "options");

    return is_text(json_member(object, "volume-type")) && is_text(json_member(object, "fstype")) &&
           (!metadata || cJSON_IsNull(metadata) ||
            (cJSON_IsObject(metadata) && are_texts(metadata))) &&
           (!options || cJSON_IsNull(options) || (cJSON_IsArray(options) && are_texts(options)));
}

static int check_mount_info(const char *text)
{
    static const char names[] = "volume-type device fstype options metadata";
    cleanup(json_deletep) cJSON *object = NULL;
    struct error error = {0};

    if (!text)
        return fail("--mount-info is missing", 0);
    if (json_read(text, strlen(text), JSON_LIMITS_MOUNT_INFO, names, &object, &error) !=
        FILE_READ) {
        (void)fprintf(stderr, "crustctl: --mount-info: %s\n", error.text);
        return EXIT_FAILED;
    }
    if (!cJSON_IsObject(object) || !json_string(object, "device"))
        return fail("--mount-info is no JSON object with a \"device\"", 0);
    return has_its_types(object) ? EXIT_DONE
                                 : fail("--mount-info: volume-type and fstype are texts, options "
                                        "a list and metadata an object of texts",
                                        0);
}

static int add(const struct session *session, const char *name)
{
    const char *volumes = source_config(session->source)->paths.kata_volumes;
    const char *text = session->options->mount_info;
    cleanup(fd_closep) int parent = -1, directory = -1;
    int r = path_make_directories(source_root(session->source), volumes, DIRECTORY_MODE);

    if (r == 0)
        r = open_volumes(session, &parent);
    if (r == 0 && mkdirat(parent, name, DIRECTORY_MODE) < 0 && errno != EEXIST)
        r = -errno;
    if (r == 0)
        r = path_open_directory_below(parent, name, &directory);
    return r < 0 ? r
                 : path_write_below(directory, mount_info_name, O_TRUNC, FILE_MODE, text,
                                    strlen(text));
}

int command_direct_volume_add(struct session *session)
{
    char name[BASE64URL_NAME_CHARS + 1];
    int r, code = name_volume(session, name);

    if (code == EXIT_DONE)
        code = check_mount_info(session->options->mount_info);
    if (code != EXIT_DONE)
        return code;
    r = add(session, name);
    return r < 0 ? fail(session->options->volume_path, r) : EXIT_DONE;
}

/* ---- remove ---- */

/* Its files and the directory; kata-runtime, too, makes nothing else there. */
enum { LEVELS = 1 };

static int remove_volume(const struct session *session, const char *name, struct error *error)
{
    cleanup(fd_closep) int parent = -1;
    int r = open_volumes(session, &parent);

    if (r == 0)
        return removal_run(parent, name, LEVELS, error);
    return r == PATH_MISSING ? 0 : error_set(error, r, "%s", strerror(-r));
}

int command_direct_volume_remove(struct session *session)
{
    char name[BASE64URL_NAME_CHARS + 1];
    struct error error = {0};
    int code = name_volume(session, name);

    if (code != EXIT_DONE)
        return code;
    if (remove_volume(session, name, &error) == 0)
        return EXIT_DONE;
    (void)fprintf(stderr, "crustctl: %s: %s\n", session->options->volume_path, error.text);
    return EXIT_FAILED;
}

/* ---- stats, resize ---- */

/* Only a path names the volume here: a number could be a relative path. */
static int check_volume_path(const char *path)
{
    return path && path[0] == '/' ? EXIT_DONE
                                  : fail("--volume-path is missing, or is no absolute path", 0);
}

int command_direct_volume_stats(struct session *session)
{
    const char *path = session->options->volume_path;
    int code = check_volume_path(path);

    return code == EXIT_DONE ? command_ask_stats(session, path) : code;
}

int command_direct_volume_resize(struct session *session)
{
    const char *path = session->options->volume_path;
    int code = check_volume_path(path);

    if (code == EXIT_DONE && !session->options->size)
        code = fail("--size is missing", 0);
    if (code == EXIT_DONE)
        code = command_ask_resize(session, path, session->options->size, "0");
    buffer_clear(&session->out); /* it prints nothing */
    return code;
}
