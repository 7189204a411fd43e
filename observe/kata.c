/* SPDX-License-Identifier: Apache-2.0 */
/* kata.c - names and traces that both runtimes have in common. */
#include "observe/kata.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "lib/process.h"
#include "observe/process_scan.h"

enum { ARGUMENTS_BYTES = 256 * 1024 };

bool kata_is_absent(int r)
{
    return path_is_missing(r) || r == PATH_BEHIND_A_LINK;
}

int kata_copy(const char *text, char **ret_copy)
{
    if (!text)
        return 0;
    *ret_copy = strdup(text);
    return *ret_copy ? 0 : -ENOMEM;
}

int kata_set_problem(struct observed_sandbox *sandbox, bool try_again, const char *directory,
                     const char *text)
{
    sandbox->try_again |= try_again;
    if (sandbox->problem)
        return 0;
    return asprintf(&sandbox->problem, "%s%s%s", directory, *directory ? "/" : "", text) < 0
               ? -ENOMEM
               : 0;
}

int kata_hide_volumes(struct observed_sandbox *sandbox, bool try_again, const char *text)
{
    char whole[2 * ERROR_TEXT_BYTES];

    free(take_pointer(&sandbox->problem));
    sandbox->hides_volumes = true;
    (void)snprintf(whole, sizeof(whole), "which volumes it has is not known: %s", text);
    return kata_set_problem(sandbox, try_again, "", whole);
}

int kata_read_file(int root, const char *directory, const char *name, struct buffer *ret_text,
                   struct error *error)
{
    cleanup(fd_closep) int fd = -1;
    int r = path_open_directory_in_root(root, directory, &fd);

    if (r < 0)
        return kata_is_absent(r) ? PATH_ABSENT : r;
    return path_read_below(fd, name, ret_text, NULL, error);
}

int kata_make_room(const cJSON *array, int most, size_t element_bytes, void **ret_room,
                   const char *name, struct error *error)
{
    int count = cJSON_IsArray(array) ? cJSON_GetArraySize(array) : 0;

    if (count > most)
        return error_set(error, FILE_WRONG, "%s: %d elements, more than %d", name, count, most);
    *ret_room = calloc(count ? (size_t)count : 1, element_bytes);
    return *ret_room ? FILE_READ : -ENOMEM;
}

int kata_has_directory(int root, const char *path, bool *ret_has)
{
    struct stat st;
    int r = path_stat_in_root(root, path, &st);

    *ret_has = r == 0 && S_ISDIR(st.st_mode);
    return kata_is_absent(r) ? 0 : r;
}

int kata_try_socket(int root, const char *directory, const char *name, char **ret_path)
{
    char path[PATH_MAX];
    struct stat st;
    int r;

    if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= PATH_MAX)
        return 0;
    r = path_stat_in_root(root, path, &st);
    if (r < 0)
        return kata_is_absent(r) ? 0 : r;
    return S_ISSOCK(st.st_mode) ? kata_copy(path, ret_path) : 0;
}

static bool mention_socket(const struct buffer *arguments, const char *path)
{
    const char *argument = buffer_text(arguments), *end = argument + arguments->length;
    static const char scheme[] = "unix:";
    size_t length = strlen(path);

    for (; argument < end; argument += strlen(argument) + 1) {
        const char *at = argument + strlen(scheme);

        if (strncmp(argument, scheme, strlen(scheme)) == 0 && strncmp(at, path, length) == 0 &&
            (at[length] == ',' || !at[length]))
            return true;
    }
    return false;
}

/* ret_mentioned: QEMU's arguments name the socket, so it exists or will exist soon. */
static int find_added_monitor(int root, const char *name, struct observed_sandbox *sandbox,
                              bool *ret_mentioned)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);
    char path[PATH_MAX];
    int r;

    (void)snprintf(path, sizeof(path), ADDED_MONITORS "/%s.sock", name);
    r = process_read_arguments(sandbox->vmm_pid, &arguments);
    if (r < 0)
        return r == PROCESS_GONE || r == BUFFER_FULL ? 0 : r;
    *ret_mentioned = mention_socket(&arguments, path);
    if (!*ret_mentioned)
        return 0;
    r = kata_try_socket(root, ADDED_MONITORS, strrchr(path, '/') + 1, &sandbox->control_socket);
    if (r == 0 && !sandbox->control_socket)
        sandbox->try_again = true;
    return r;
}

int kata_find_monitor(const struct observe_sandbox_paths *paths, const char *name,
                      const char *directory, const char *extra, struct observed_sandbox *sandbox)
{
    bool mentioned = false;
    int r = 0;

    if (paths->extra_monitor)
        r = find_added_monitor(paths->root, name, sandbox, &mentioned);
    if (r < 0 || sandbox->control_socket || !directory[0])
        return r;
    if (paths->extra_monitor && extra)
        r = kata_try_socket(paths->root, directory, extra, &sandbox->control_socket);
    if (r == 0 && !sandbox->control_socket && paths->main_monitor && !mentioned)
        r = kata_try_socket(paths->root, directory, "qmp.sock", &sandbox->control_socket);
    return r;
}

/* ---- records -------------------------------------------------------------------------------- */

/* When Kata's Go runtime attaches a mount as a block device, it replaces the mount's source by that
 * device (createBlockDevices() in src/runtime/virtcontainers/container.go), so only the destination
 * tells which of a bundle's mounts a record is about. A mount whose source is still its own path is
 * shared with the guest as a directory. */

static int compare_texts(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

/* Sorts by the fields that records_find() compares; records with equal ones are sorted by
 * source. */
static int compare(const void *a, const void *b)
{
    const struct observed_record *left = a, *right = b;
    int order = compare_texts(left->destination, right->destination);

    if (order == 0)
        order = strcmp(left->container, right->container);
    return order ? order : strcmp(left->source, right->source);
}

void records_sort(struct observed_sandbox *sandbox)
{
    if (sandbox->records)
        qsort(sandbox->record, sandbox->records, sizeof(*sandbox->record), compare);
}

const struct observed_record *records_find(const struct observed_sandbox *sandbox,
                                           const char *container, const char *destination)
{
    unsigned low = 0, high = sandbox->records;

    while (destination && low < high) {
        unsigned middle = low + (high - low) / 2;
        const struct observed_record *record = &sandbox->record[middle];
        int order = compare_texts(record->destination, destination);

        if (order == 0)
            order = strcmp(record->container, container);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (!destination || low == sandbox->records ||
        compare_texts(sandbox->record[low].destination, destination) != 0 ||
        strcmp(sandbox->record[low].container, container) != 0)
        return NULL;
    return &sandbox->record[low];
}

void records_done(struct observed_sandbox *sandbox)
{
    for (unsigned i = 0; i < sandbox->records; i++) {
        free(sandbox->record[i].container);
        free(sandbox->record[i].source);
        free(sandbox->record[i].destination);
    }
    free(sandbox->record);
    sandbox->record = NULL;
    sandbox->records = 0;
}

/* ---- guest traits --------------------------------------------------------------------------- */

/* QEMU has a confidential guest only with an object of one of the types below, which its machine
 * names as confidential-guest-support (Kata: src/runtime/virtcontainers/qemu_*.go,
 * src/runtime-rs/crates/hypervisor/src/qemu/cmdline_generator.rs). A shared directory is a
 * vhost-user-fs device (virtiofs), in old versions virtio-9p. Firecracker supports neither
 * confidential guests nor shared directories. Cloud Hypervisor gets both over its API socket and
 * not by arguments. */

static const char *const confidential[] = {
    "confidential-guest-support=",
    "sev-guest",
    "sev-snp-guest",
    "tdx-guest",
    "s390-pv-guest",
    "pef-guest",
    "rme-guest",
    "memory-encryption=",
};

static bool names_any(const char *argument, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(argument, words[i]))
            return true;
    return false;
}

void guest_traits_from_arguments(const char *arguments, size_t length, struct guest_traits *traits)
{
    static const char *const shares[] = {"vhost-user-fs", "virtio-9p"};
    const char *argument = arguments, *end = arguments + length;
    bool has_devices = false, has_share = false;

    for (; argument < end; argument += strlen(argument) + 1) {
        has_devices |= strcmp(argument, "-device") == 0;
        has_share |= names_any(argument, shares, array_length(shares));
        traits->is_confidential |= names_any(argument, confidential, array_length(confidential));
    }
    if (has_share)
        traits->share = GUEST_SHARE_DIRECTORY;
    else if (has_devices)
        traits->share = GUEST_SHARE_NONE;
}

/* Asks persist.json where the arguments do not tell. */
static void ask_persist(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                        struct guest_traits *traits)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_PERSIST.bytes);
    cleanup(json_deletep) cJSON *object = NULL;
    char directory[PATH_MAX];
    const char *share;

    if (snprintf(directory, sizeof(directory), "%s/%s", paths->kata_go_sandboxes, sandbox_id) >=
            PATH_MAX ||
        kata_read_file(paths->root, directory, "persist.json", &text, NULL) != PATH_OK ||
        json_parse(buffer_text(&text), text.length, JSON_LIMITS_PERSIST, &object, NULL) < 0)
        return;
    share = json_string(json_member(json_member(object, "Config"), "HypervisorConfig"), "SharedFS");
    if (share && *share)
        traits->share = strcmp(share, "none") == 0 ? GUEST_SHARE_NONE : GUEST_SHARE_DIRECTORY;
}

int guest_traits_observe(const struct observe_sandbox_paths *paths, enum hypervisor_kind kind,
                         const char *sandbox_id, pid_t vmm_pid, struct guest_traits *ret_traits)
{
    const enum hypervisor_guest_source source = hypervisor_guest_source(kind);
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);
    struct guest_traits traits = {0};
    int r = process_read_arguments(vmm_pid, &arguments);

    if (r < 0)
        return r;
    if (source == HYPERVISOR_GUEST_BY_ARGUMENTS)
        guest_traits_from_arguments(buffer_text(&arguments), arguments.length, &traits);
    else if (source == HYPERVISOR_GUEST_BY_KIND)
        traits.share = GUEST_SHARE_NONE;
    else
        return GUEST_TRAITS_NO_SOURCE;
    if (traits.share == GUEST_SHARE_UNKNOWN)
        ask_persist(paths, sandbox_id, &traits);
    *ret_traits = traits;
    return 0;
}
