/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_cli.c - finds the runtime's tool, decides whether it may be run, runs it, and records
 * that.
 *
 * A runtime can write the file, and root would run the program that it names, so it is trusted as
 * little as possible: the configuration must name the program too, and only root may write or
 * replace it. It must run where its paths mean the node's files. With --root, that directory
 * becomes the program's root. Without --root crustd may still have mounts of its own (by a unit
 * that protects the system, in a container): then the program and the volumes' directory must be
 * the same files that the node's first process has at these paths.
 *
 * The intent is committed before the program runs; if it cannot be recorded, the program does not
 * run. If the client goes away, the run is killed, and that is its result.
 */
#include "reconciler/command/runtime_cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/encode.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/path.h"
#include "lib/process.h"
#include "observe/observe.h"
#include "reconciler/command/clients.h"
#include "store/store.h"

#define FILE_NAME    "runtime-cli"
#define DETAIL_BEGIN "{\"command\":\"%s\"" /* record() completes it */

enum { NUMBER_BYTES = 24, DETAIL_BYTES = 16 * 1024 };

/* Outcomes of looking for the tool. */
enum {
    RUNTIME_CLI_FOUND,
    RUNTIME_CLI_NONE,   /* none is named, or crustctl, which would only ask crustd again */
    RUNTIME_CLI_UNSAFE, /* it is not to be run here: error says why */
};

/* RUNTIME_CLI_FOUND: there is one. */
static int read_in(const struct context *context, const char *volumes, const char *name,
                   struct buffer *text, struct stat *ret_volumes, struct error *error)
{
    cleanup(fd_closep) int root = -1;
    cleanup(fd_closep) int directory = -1;
    int r = path_open_directory_in_root(context->root, volumes, &root);

    if (r == 0)
        r = path_open_directory_below(root, name, &directory);
    if (r < 0)
        return RUNTIME_CLI_NONE;
    r = path_read_below(directory, FILE_NAME, text, NULL, error);
    if (r == PATH_ABSENT)
        return RUNTIME_CLI_NONE;
    if (r == PATH_OK && fstat(root, ret_volumes) < 0)
        return error_set_errno(error, -errno, "%s", volumes), RUNTIME_CLI_UNSAFE;
    return r == PATH_OK ? RUNTIME_CLI_FOUND : RUNTIME_CLI_UNSAFE;
}

/* The file, and which volumes' directory it was found below. */
struct found {
    struct buffer text;
    const char *volumes;
    struct stat volumes_status;
};

/* Either kind of name may stand in either root; the KEP's own comes first. */
static int read_file(const struct context *context, const char *target_path, struct found *found,
                     struct error *error)
{
    const char *const volumes[] = {context->config->paths.crust_volumes,
                                   context->config->paths.kata_volumes};
    char hash[SHA256_HEX_BYTES], encoded[STORE_KEY_BYTES];
    int r = RUNTIME_CLI_NONE;

    sha256_hex(target_path, strlen(target_path), hash);
    base64url_encode(target_path, strlen(target_path), encoded);
    for (size_t i = 0; r == RUNTIME_CLI_NONE && i < 2 * array_length(volumes); i++) {
        found->volumes = volumes[i / 2];
        r = read_in(context, found->volumes, i % 2 ? encoded : hash, &found->text,
                    &found->volumes_status, error);
    }
    return r;
}

static bool is_roots_alone(const struct stat *status)
{
    return (status->st_uid == 0 || status->st_uid == geteuid()) &&
           !(status->st_mode & (S_IWGRP | S_IWOTH));
}

/* Anyone who may write to a directory on its path can put another program in its place. */
static int check_parents(int root, const char *program, struct error *error)
{
    char directory[PATH_MAX];

    for (const char *slash = program; slash; slash = strchr(slash + 1, '/')) {
        struct stat status;
        int r;

        (void)snprintf(directory, sizeof(directory), "%.*s",
                       slash == program ? 1 : (int)(slash - program), program);
        r = path_stat_in_root(root, directory, &status);
        if (r < 0)
            return error_set(error, RUNTIME_CLI_UNSAFE, "%s: %s", directory, strerror(-r));
        if (!is_roots_alone(&status))
            return error_set(error, RUNTIME_CLI_UNSAFE,
                             "%s: others than root can write it, and %s is below", directory,
                             program);
    }
    return RUNTIME_CLI_FOUND;
}

static int check_program(int root, const char *path, struct runtime_cli *ret_cli,
                         struct stat *ret_status, struct error *error)
{
    int r = path_real_in_root(root, path, ret_cli->program);

    if (r == 0)
        r = path_stat_in_root(root, ret_cli->program, ret_status);
    if (r < 0)
        return error_set(error, RUNTIME_CLI_UNSAFE, "%s: %s", path, strerror(-r));
    if (!S_ISREG(ret_status->st_mode) || !(ret_status->st_mode & S_IXUSR))
        return error_set(error, RUNTIME_CLI_UNSAFE, "%s: no program", path);
    if (!is_roots_alone(ret_status))
        return error_set(error, RUNTIME_CLI_UNSAFE, "%s: others than root can write it", path);
    return check_parents(root, ret_cli->program, error);
}

static int check_place(int root, const struct found *found, const struct stat *program,
                       struct runtime_cli *cli, struct error *error)
{
    const unsigned wanted = STATX_INO | STATX_MNT_ID;
    struct statx given, ours;

    /* --root, or the default: "/" as this process has it, on the same mount. */
    cli->root = statx(root, "", AT_EMPTY_PATH, wanted, &given) == 0 &&
                        statx(AT_FDCWD, "/", 0, wanted, &ours) == 0 &&
                        given.stx_ino == ours.stx_ino &&
                        (given.stx_mask & ours.stx_mask & STATX_MNT_ID) &&
                        given.stx_mnt_id == ours.stx_mnt_id
                    ? -1
                    : root;
    if (cli->root >= 0)
        return RUNTIME_CLI_FOUND;
    if (!namespaces_first_has(cli->program, program))
        return error_set(error, RUNTIME_CLI_UNSAFE,
                         "%s: the node's first process has another file there, or none",
                         cli->program);
    if (!namespaces_first_has(found->volumes, &found->volumes_status))
        return error_set(error, RUNTIME_CLI_UNSAFE,
                         "%s: the node's first process has another directory there, or none",
                         found->volumes);
    return RUNTIME_CLI_FOUND;
}

static int check_found(const struct context *context, struct found *found,
                       struct runtime_cli *ret_cli, struct error *error)
{
    const struct config_list *allowed = &context->config->crust.runtime_cli_allow;
    struct stat program;
    const char *path;
    unsigned i = 0;
    int r;

    /* One path, as echo writes it. */
    while (found->text.length && strchr(" \t\r\n", found->text.data[found->text.length - 1]))
        found->text.data[--found->text.length] = '\0';
    path = buffer_text(&found->text);
    if (path[0] != '/' || !json_is_text(path, found->text.length))
        return error_set(error, RUNTIME_CLI_UNSAFE, FILE_NAME " names no absolute path");
    while (i < allowed->count && strcmp(config_list_item(allowed, i), path) != 0)
        i++;
    if (i == allowed->count)
        return error_set(error, RUNTIME_CLI_UNSAFE,
                         "crust.runtime_cli_allow does not have what " FILE_NAME " names");
    if (strcmp(basename(path), "crustctl") == 0)
        return RUNTIME_CLI_NONE;
    ret_cli->is_kata = strcmp(basename(path), "kata-runtime") == 0;
    r = check_program(context->root, path, ret_cli, &program, error);
    return r == RUNTIME_CLI_FOUND ? check_place(context->root, found, &program, ret_cli, error) : r;
}

/* ---- one run -------------------------------------------------------------------------------- */

struct runtime_cli_run {
    const struct context *context;
    struct child *child; /* NULL: it has ended */
    int64_t volume_id;
    bool resizes;
    uint64_t required_bytes, limit_bytes;
    runtime_cli_done *done;
    void *userdata;
};

static void log_passed_over(int64_t volume_id, const struct error *error)
{
    log_info(&(struct log_ids){.volume = volume_id},
             "the volume's runtime-cli was not run, and crustd takes its own routes: %s",
             error->text);
}

static void append_number(struct buffer *detail, const char *name, uint64_t number)
{
    if (number)
        buffer_append_format(detail, ",\"%s\":%" PRIu64, name, number);
}

static int record(const struct runtime_cli_run *run, const char *kind, struct buffer *detail)
{
    struct store *store = run->context->store;
    int r = buffer_append_text(detail, "}");

    if (r == 0)
        r = store_begin(store);
    if (r == 0)
        r = store_journal(store, kind, run->volume_id, NULL, NULL, buffer_text(detail));
    return store_end(store, r);
}

/* answer: NULL if it is unusable, and `why` says so. The client gets the answer even if it cannot
 * be recorded. */
static void record_result(const struct runtime_cli_run *run,
                          const struct runtime_cli_answer *answer, const char *why)
{
    cleanup(buffer_done) struct buffer detail = BUFFER_INIT(DETAIL_BYTES);
    int r;

    buffer_append_format(&detail, DETAIL_BEGIN, run->resizes ? "resize" : "stats");
    if (!answer) {
        json_append_member(&detail, "error", why);
    } else {
        append_number(&detail, "capacity_bytes", answer->capacity_bytes);
        append_number(&detail, "total_bytes", answer->stats.total);
        append_number(&detail, "used_bytes", answer->stats.used);
    }
    r = record(run, "runtime_cli_answered", &detail);
    if (r < 0)
        log_warning(&(struct log_ids){.volume = run->volume_id},
                    "cannot record the answer of the volume's runtime-cli: %s", strerror(-r));
}

static int judge(const struct runtime_cli_run *run, enum child_end end, int status,
                 const struct buffer *output, struct runtime_cli_answer *ret_answer,
                 struct error *error)
{
    const struct context *context = run->context;
    struct observed_device device;
    struct store_volume volume;
    uint64_t device_bytes;
    int r = store_get_volume(context->store, run->volume_id, &volume);

    if (r < 0)
        return error_set(error, r, "%s", store_error_text(context->store));
    if (r == STORE_NO_VOLUME)
        return error_set(error, -ESTALE, "the volume is gone");
    device_bytes = volume.device_id ? volume_usable_bytes(context, &volume) : 0;
    /* A driver grows the device and asks at once: its size is read anew. */
    if (device_bytes && volume.device_kind == DEVICE_KIND_BLOCK &&
        observe_device_number(context->sysfs, volume.major, volume.minor, &device) == OBSERVED &&
        device.size_bytes > device_bytes)
        device_bytes = device.size_bytes;
    if (run->resizes)
        r = runtime_cli_read_capacity(end, status, output, &ret_answer->capacity_bytes, error);
    else
        r = runtime_cli_read_stats(end, status, output, &ret_answer->stats, error);
    if (r < 0)
        return r;
    return run->resizes
               ? runtime_cli_check_capacity(ret_answer->capacity_bytes, run->required_bytes,
                                            run->limit_bytes, device_bytes, error)
               : runtime_cli_check_stats(&ret_answer->stats, device_bytes, error);
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata)
{
    struct runtime_cli_run *run = userdata;
    struct runtime_cli_answer answer = {0};
    struct error error = {0};
    int r = judge(run, end, status, output, &answer, &error);

    run->child = child_free(child);
    record_result(run, r < 0 ? NULL : &answer, error.text);
    if (r < 0)
        log_info(&(struct log_ids){.volume = run->volume_id},
                 "the volume's runtime-cli gave no usable answer: %s", error.text);
    run->done(r < 0 ? NULL : &answer, run->userdata);
}

struct runtime_cli_run *runtime_cli_free(struct runtime_cli_run *run)
{
    if (run && run->child) {
        run->child = child_free(run->child);
        record_result(run, NULL, "nobody waited for it any more");
    }
    free(run);
    return NULL;
}

static int start(struct runtime_cli_run *run, const struct runtime_cli_question *question)
{
    char minimum[NUMBER_BYTES], maximum[NUMBER_BYTES];
    const char *const program = question->cli->program, *const path = question->target_path;
    const char *const kata[] = {program, "direct-volume", "stats", "--volume-path", path, NULL};
    const char *const stats[] = {program, "crust", "stats", path, NULL};
    const char *const resize[] = {program, "crust", "resize", path, minimum, maximum, NULL};
    const struct child_request request = {
        .arguments = question->resizes        ? resize
                     : question->cli->is_kata ? kata
                                              : stats,
        .output_limit = RUNTIME_CLI_OUTPUT_BYTES,
        .root = question->cli->root,
        /* Leaves time for crustd's own routes. */
        .allowed_ns = run->context->config->resize.call_timeout_seconds * NSEC_PER_SEC / 2,
    };

    (void)snprintf(minimum, sizeof(minimum), "%" PRIu64, question->required_bytes);
    (void)snprintf(maximum, sizeof(maximum), "%" PRIu64, question->limit_bytes);
    return child_new(run->context->loop, &request, on_end, run, &run->child);
}

int runtime_cli_ask(const struct context *context, const struct runtime_cli_question *question,
                    runtime_cli_done *done, void *userdata, struct runtime_cli_run **ret_run)
{
    const struct runtime_cli *cli = question->cli;
    cleanup(buffer_done) struct buffer detail = BUFFER_INIT(DETAIL_BYTES);
    struct runtime_cli_run *run;
    struct error error = {0};
    int r;

    if (question->resizes && cli->is_kata)
        return -ENOSYS; /* kata-runtime's resize tells the guest alone, and not the VMM */
    run = calloc(1, sizeof(*run));
    if (!run)
        return -ENOMEM;
    *run = (struct runtime_cli_run){
        .context = context,
        .volume_id = question->volume_id,
        .resizes = question->resizes,
        .required_bytes = question->required_bytes,
        .limit_bytes = question->limit_bytes,
        .done = done,
        .userdata = userdata,
    };
    buffer_append_format(&detail, DETAIL_BEGIN, run->resizes ? "resize" : "stats");
    json_append_member(&detail, "program", cli->program);
    append_number(&detail, "required_bytes", run->required_bytes);
    append_number(&detail, "limit_bytes", run->limit_bytes);
    r = record(run, "runtime_cli_intended", &detail);
    if (r < 0) {
        free(run);
        return r;
    }
    r = start(run, question);
    if (r < 0) {
        (void)error_set(&error, r, "%s: it can't be run: %s%s", cli->program, child_explain(r),
                        r == CHILD_NOT_PERMITTED && cli->root >= 0
                            ? " (below --root that takes CAP_SYS_CHROOT)"
                            : "");
        record_result(run, NULL, error.text);
        log_passed_over(run->volume_id, &error);
        free(run);
        return r;
    }
    *ret_run = run;
    return 0;
}

bool runtime_cli_try(const struct context *context, struct runtime_cli_question question,
                     runtime_cli_done *done, void *userdata, struct runtime_cli_run **ret_run)
{
    struct found found = {.text = BUFFER_INIT(CONFIG_PATH_BYTES)};
    struct runtime_cli cli;
    struct error error = {0};
    int r = read_file(context, question.target_path, &found, &error);

    if (r == RUNTIME_CLI_FOUND)
        r = check_found(context, &found, &cli, &error);
    buffer_done(&found.text);
    if (r == RUNTIME_CLI_UNSAFE)
        log_passed_over(question.volume_id, &error);
    question.cli = &cli;
    return r == RUNTIME_CLI_FOUND &&
           runtime_cli_ask(context, &question, done, userdata, ret_run) == 0;
}
