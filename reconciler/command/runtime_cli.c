/* runtime_cli.c - found, judged, asked, understood.
 *
 * The file stands where a runtime can write and names what root would run, so it is believed as
 * little as possible: the program must be one that the configuration names, root's, and nobody
 * else's to write; it gets no shell, bounded time and output. It must run where its own paths mean
 * what they say, so a crustd with a mount namespace of its own (in a pod, by a unit that protects
 * the system) runs none. Whatever is wrong with it or its answer, crustd's own ways remain.
 */
#include "reconciler/command/runtime_cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent-client/shim_codec.h"
#include "lib/base64url.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/namespaces.h"
#include "lib/path.h"
#include "lib/sha256.h"
#include "reconciler/internal.h"

#define FILE_NAME "runtime-cli"

enum { OUTPUT_BYTES = 64 * 1024, NUMBER_BYTES = 24 };

/* ---- the file ---- */

/* RUNTIME_CLI_FOUND: there is one. */
static int read_in(const struct reconciler *reconciler, const char *volumes, const char *name,
                   struct buffer *text, struct error *error)
{
    cleanup(fd_closep) int root = -1;
    cleanup(fd_closep) int directory = -1;
    int r = path_open_directory_in_root(reconciler->root, volumes, &root);

    if (r == 0)
        r = path_open_directory_below(root, name, &directory);
    if (r < 0)
        return RUNTIME_CLI_NONE;
    r = path_read_below(directory, FILE_NAME, text, NULL, error);
    if (r == PATH_ABSENT)
        return RUNTIME_CLI_NONE;
    return r == PATH_OK ? RUNTIME_CLI_FOUND : RUNTIME_CLI_UNSAFE;
}

/* Either kind of name may stand in either root; the KEP's own comes first. */
static int read_file(const struct reconciler *reconciler, const char *target_path,
                     struct buffer *text, struct error *error)
{
    const char *const volumes[] = {reconciler->config.paths.crust_volumes,
                                   reconciler->config.paths.kata_volumes};
    char hash[SHA256_HEX_BYTES], encoded[STORE_KEY_BYTES];
    int r = RUNTIME_CLI_NONE;

    sha256_hex(target_path, strlen(target_path), hash);
    base64url_encode(target_path, strlen(target_path), encoded);
    for (size_t i = 0; r == RUNTIME_CLI_NONE && i < array_length(volumes); i++) {
        r = read_in(reconciler, volumes[i], hash, text, error);
        if (r == RUNTIME_CLI_NONE)
            r = read_in(reconciler, volumes[i], encoded, text, error);
    }
    return r;
}

/* One path, as echo writes it. */
static void cut_line(struct buffer *text)
{
    while (text->length && strchr(" \t\r\n", text->data[text->length - 1]))
        text->data[--text->length] = '\0';
}

/* ---- the program ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool is_allowed(const struct reconciler *reconciler, const char *path)
{
    const struct config_paths_list *list = &reconciler->config.crust.runtime_cli_allow;

    for (unsigned i = 0; i < list->count; i++)
        if (strcmp(list->item[i], path) == 0)
            return true;
    return false;
}

static int check_program(const struct reconciler *reconciler, const char *path,
                         struct runtime_cli *ret_cli, struct error *error)
{
    struct stat status;
    int r = path_stat_in_root(reconciler->root, path, &status);

    if (r < 0)
        return error_set(error, RUNTIME_CLI_UNSAFE, "%s: %s", path, strerror(-r));
    if (!S_ISREG(status.st_mode) || !(status.st_mode & S_IXUSR))
        return error_set(error, RUNTIME_CLI_UNSAFE, "%s: no program", path);
    if ((status.st_uid != 0 && status.st_uid != geteuid()) ||
        (status.st_mode & (S_IWGRP | S_IWOTH)))
        return error_set(error, RUNTIME_CLI_UNSAFE, "%s: others than root can write it", path);
    if (!namespaces_mounts_are_first())
        return error_set(error, RUNTIME_CLI_UNSAFE,
                         "%s: crustd has a mount namespace of its own, and runs nothing in it",
                         path);
    r = path_resolve(reconciler->root, "/", path, ret_cli->program);
    if (r < 0)
        return error_set(error, RUNTIME_CLI_UNSAFE, "%s: %s", path, strerror(-r));
    ret_cli->is_kata = strcmp(base_name(path), "kata-runtime") == 0;
    return RUNTIME_CLI_FOUND;
}

int runtime_cli_find(const struct reconciler *reconciler, const char *target_path,
                     struct runtime_cli *ret_cli, struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(CONFIG_PATH_BYTES);
    int r = read_file(reconciler, target_path, &text, error);

    if (r != RUNTIME_CLI_FOUND)
        return r;
    cut_line(&text);
    if (text.length == 0 || text.data[0] != '/' || !json_is_text(text.data, text.length))
        return error_set(error, RUNTIME_CLI_UNSAFE, FILE_NAME " names no absolute path");
    if (!is_allowed(reconciler, text.data))
        return error_set(error, RUNTIME_CLI_UNSAFE,
                         "crust.runtime_cli_allow does not have what " FILE_NAME " names");
    if (strcmp(base_name(text.data), "crustctl") == 0)
        return RUNTIME_CLI_NONE;
    return check_program(reconciler, text.data, ret_cli, error);
}

/* ---- asking ---- */

static int run(struct loop *loop, const char *const *arguments, uint64_t deadline_ns,
               child_done *done, void *userdata, struct child **ret_child)
{
    struct child_request request = {arguments, OUTPUT_BYTES, deadline_ns};

    return child_new(loop, &request, done, userdata, ret_child);
}

int runtime_cli_stats(struct loop *loop, const struct runtime_cli *cli, const char *target_path,
                      uint64_t deadline_ns, child_done *done, void *userdata,
                      struct child **ret_child)
{
    const char *const kata[] = {cli->program,    "direct-volume", "stats",
                                "--volume-path", target_path,     NULL};
    const char *const crust[] = {cli->program, "crust", "stats", target_path, NULL};

    return run(loop, cli->is_kata ? kata : crust, deadline_ns, done, userdata, ret_child);
}

/* kata-runtime's resize tells the guest alone, and not the VMM. */
int runtime_cli_resize(struct loop *loop, const struct runtime_cli *cli, const char *target_path,
                       uint64_t least, uint64_t most, uint64_t deadline_ns, child_done *done,
                       void *userdata, struct child **ret_child)
{
    char minimum[NUMBER_BYTES], maximum[NUMBER_BYTES];
    const char *const crust[] = {cli->program, "crust", "resize", target_path,
                                 minimum,      maximum, NULL};

    if (cli->is_kata)
        return -ENOSYS;
    (void)snprintf(minimum, sizeof(minimum), "%" PRIu64, least);
    (void)snprintf(maximum, sizeof(maximum), "%" PRIu64, most);
    return run(loop, crust, deadline_ns, done, userdata, ret_child);
}

/* ---- understanding ---- */

static int check_end(enum child_end end, int status, struct error *error)
{
    switch (end) {
    case CHILD_EXITED:
        return status == 0 ? 0 : error_set(error, -EIO, "it ended with exit code %d", status);
    case CHILD_KILLED:
        return error_set(error, -EIO, "it was ended by signal %d", status);
    case CHILD_TIMEOUT:
        return error_set(error, -ETIMEDOUT, "it did not end within its time");
    case CHILD_FLOOD:
        break;
    }
    return error_set(error, -EMSGSIZE, "it said more than %d bytes", OUTPUT_BYTES);
}

int runtime_cli_read_stats(enum child_end end, int status, const struct buffer *output,
                           struct agent_stats *ret_stats, struct error *error)
{
    struct agent_stats stats;
    int r = check_end(end, status, error);

    if (r < 0)
        return r;
    r = shim_parse_stats(SHIM_GO, buffer_text(output), output->length, &stats);
    if (r < 0 || (!stats.has_bytes && !stats.has_inodes))
        return error_set(error, r < 0 ? r : -EBADMSG, "what it said is not understood");
    *ret_stats = stats;
    return 0;
}

int runtime_cli_read_capacity(enum child_end end, int status, const struct buffer *output,
                              uint64_t *ret_bytes, struct error *error)
{
    cleanup(json_deletep) cJSON *object = NULL;
    int r = check_end(end, status, error);

    if (r < 0)
        return r;
    r = json_parse(buffer_text(output), output->length, JSON_LIMITS_HTTP, &object, error);
    if (r == 0)
        r = json_number(object, "capacity_bytes", ret_bytes);
    return r < 0 ? error_set(error, r, "what it said is not understood") : 0;
}

/* ---- and then ---- */

uint64_t runtime_cli_time(const struct reconciler *reconciler)
{
    return reconciler->config.resize.call_timeout_seconds * NSEC_PER_SEC / 2;
}

void runtime_cli_pass_over(int64_t volume_id, const struct error *error)
{
    log_info(&(struct log_ids){.volume = volume_id}, "the volume's runtime-cli is of no help: %s",
             error->text);
}
