/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_cli.c - finds the runtime's tool and decides whether it may be run.
 *
 * A runtime can write the file, and root would run the program that it names, so it is trusted as
 * little as possible: the configuration must name the program too, and only root may write or
 * replace it. It must run where its paths mean the node's files. With --root, that directory
 * becomes the program's root. Without --root crustd may still have mounts of its own (by a unit
 * that protects the system, in a container): then the program and the volumes' directory must be
 * the same files that the node's first process has at these paths.
 */
#include "reconciler/command/runtime_cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "lib/base64url.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/path.h"
#include "lib/process_trust.h"
#include "lib/sha256.h"
#include "reconciler/command/clients_state.h"
#include "store/store.h"

#define FILE_NAME "runtime-cli"

/* ---- the file ---- */

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
    for (size_t i = 0; r == RUNTIME_CLI_NONE && i < array_length(volumes); i++) {
        found->volumes = volumes[i];
        r = read_in(context, volumes[i], hash, &found->text, &found->volumes_status, error);
        if (r == RUNTIME_CLI_NONE)
            r = read_in(context, volumes[i], encoded, &found->text, &found->volumes_status, error);
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

static bool is_allowed(const struct context *context, const char *path)
{
    const struct config_list *list = &context->config->crust.runtime_cli_allow;

    for (unsigned i = 0; i < list->count; i++)
        if (strcmp(config_list_item(list, i), path) == 0)
            return true;
    return false;
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

/* ---- where it runs ---- */

/* --root, or the default: "/" as this process has it, on the same mount. */
static bool is_our_root(int root)
{
    struct statx given, ours;
    const unsigned wanted = STATX_INO | STATX_MNT_ID;

    return statx(root, "", AT_EMPTY_PATH, wanted, &given) == 0 &&
           statx(AT_FDCWD, "/", 0, wanted, &ours) == 0 && given.stx_ino == ours.stx_ino &&
           (given.stx_mask & ours.stx_mask & STATX_MNT_ID) && given.stx_mnt_id == ours.stx_mnt_id;
}

static int check_place(int root, const struct found *found, const struct stat *program,
                       struct runtime_cli *cli, struct error *error)
{
    cli->root = is_our_root(root) ? -1 : root;
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

/* ---- all of it ---- */

static int judge(const struct context *context, struct found *found, struct runtime_cli *ret_cli,
                 struct error *error)
{
    struct stat program;
    const char *path;
    int r;

    cut_line(&found->text);
    path = buffer_text(&found->text);
    if (path[0] != '/' || !json_is_text(path, found->text.length))
        return error_set(error, RUNTIME_CLI_UNSAFE, FILE_NAME " names no absolute path");
    if (!is_allowed(context, path))
        return error_set(error, RUNTIME_CLI_UNSAFE,
                         "crust.runtime_cli_allow does not have what " FILE_NAME " names");
    if (strcmp(basename(path), "crustctl") == 0)
        return RUNTIME_CLI_NONE;
    ret_cli->is_kata = strcmp(basename(path), "kata-runtime") == 0;
    r = check_program(context->root, path, ret_cli, &program, error);
    return r == RUNTIME_CLI_FOUND ? check_place(context->root, found, &program, ret_cli, error) : r;
}

int runtime_cli_find(const struct context *context, const char *target_path,
                     struct runtime_cli *ret_cli, struct error *error)
{
    struct found found = {.text = BUFFER_INIT(CONFIG_PATH_BYTES)};
    int r = read_file(context, target_path, &found, error);

    if (r == RUNTIME_CLI_FOUND)
        r = judge(context, &found, ret_cli, error);
    buffer_done(&found.text);
    return r;
}
