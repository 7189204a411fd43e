/* SPDX-License-Identifier: Apache-2.0 */
/* node.h - a scratch node for crustctl's tests: a database below a root, and no daemon. */
#pragma once

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crustctl/crustctl.h"
#include "lib/cleanup.h"
#include "store/cleanups.h"
#include "store/store.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"
#include "tests/unit/volume_rows.h"

struct node {
    char root[SCRATCH_BYTES];
    struct store *store;
    int64_t grown, blocked, unbound; /* volume ids */
};

#define MIB (UINT64_C(1) << 20)

static inline void node_path(const struct node *node, const char *name, char ret_path[static 256])
{
    (void)snprintf(ret_path, 256, "%s%s", node->root, name);
}

static inline int64_t node_add_volume(struct node *node, unsigned number, const char *pv)
{
    char key[32], target[160], device[32];
    int64_t id;
    bool changed;
    const struct store_entry entry = {
        .key = key,
        .target_path = target,
        .pv = pv,
        .volume_handle = number == 3 ? NULL : "vol-0a1b",
        .pod_uid = "5bd1cbf5-02ab-4a1b-9fd7-1d4b8f6f0a51",
        .device = device,
        .volume_type = "block",
        .fs_type = "ext4",
        .options = "[\"rw\"]",
        .metadata = "{\"csi.storage.k8s.io/pvc/name\":\"data-database-0\"}",
        .mount_info_sha256 = "0",
        .grows_file_system = true,
        .directory_inode = number,
    };

    (void)snprintf(key, sizeof(key), "key%u", number);
    (void)snprintf(device, sizeof(device), "/dev/loop%u", number);
    (void)snprintf(target, sizeof(target),
                   "/var/lib/kubelet/pods/5bd1cbf5-02ab-4a1b-9fd7-1d4b8f6f0a51/volumes/"
                   "kubernetes.io~csi/%s/mount",
                   pv ? pv : key);
    assert_int_equal(row_put_entry(node->store, &entry, &id, &changed), 0);
    return id;
}

/* A volume on a device that has grown from 64 to 128 MiB, in a sandbox. */
static inline int64_t node_add_bound_volume(struct node *node, unsigned number, const char *pv,
                                            const char *sandbox_id, const char *monitor)
{
    const int64_t volume = node_add_volume(node, number, pv);
    const struct store_device device = {.name = "/dev/loop0",
                                        .major = 7,
                                        .minor = number,
                                        .diskseq = number,
                                        .size_bytes = 128 * MIB};
    const struct store_sandbox sandbox = {.sandbox_id = sandbox_id,
                                          .runtime = RUNTIME_KATA_GO,
                                          .hypervisor = HYPERVISOR_QEMU,
                                          .vmm_pid = 4711,
                                          .vmm_start_ns = number,
                                          .control_socket = monitor,
                                          .agent_address = "vsock://42:1024",
                                          .pod_namespace = "default",
                                          .pod_name = "database-0"};
    int64_t device_id, sandbox_ref;
    bool changed;

    assert_int_equal(store_put_device(node->store, &device, &device_id, &changed), 0);
    assert_int_equal(store_set_volume_device(node->store, volume, device_id, &changed), 0);
    assert_int_equal(store_put_sandbox(node->store, &sandbox, &sandbox_ref, &changed), 0);
    assert_int_equal(
        store_open_binding(node->store, &(struct store_binding){.volume_id = volume,
                                                                .sandbox_ref = sandbox_ref,
                                                                .device_id = device_id,
                                                                .drive_id = "drive-3f1a",
                                                                .guest_path = "/run/kata/data",
                                                                .source = "persist",
                                                                .device_bytes = 64 * MIB}),
        0);
    assert_int_equal(store_put_hypervisor_result(
                         node->store, &(struct store_hypervisor_result){.volume_id = volume,
                                                                        .reason = REASON_NONE,
                                                                        .bytes = 64 * MIB}),
                     0);
    assert_int_equal(row_open_resize(node->store, volume, 64 * MIB, 128 * MIB), 0);
    return volume;
}

static inline void node_fill(struct node *node)
{
    assert_int_equal(store_begin(node->store), 0);
    node->grown = node_add_bound_volume(node, 1, "pvc-orders", "a1b2c3d4e5f60718293a4b5c6d7e8f90",
                                        "/run/vc/vm/a1b2/extra-monitor.sock");
    node->blocked =
        node_add_bound_volume(node, 2, "pvc-ledger", "ffeeddccbbaa99887766554433221100", NULL);
    node->unbound = node_add_volume(node, 3, NULL);
    assert_int_equal(
        row_set_state(node->store, node->grown, STATE_BLOCK_GROWN, REASON_AGENT_UNSUPPORTED, NULL),
        0);
    assert_int_equal(
        row_set_state(node->store, node->blocked, STATE_BLOCKED, REASON_MONITOR_MISSING, NULL), 0);
    assert_int_equal(row_set_state(node->store, node->unbound, STATE_UNBOUND, REASON_NONE, NULL),
                     0);
    assert_int_equal(store_commit(node->store), 0);
}

static inline int node_set_up(void **state)
{
    static const char *const directories[] = {"/var", "/var/lib", "/var/lib/crustd"};
    struct node *node = calloc(1, sizeof(*node));
    struct error error = {0};
    char path[256];

    display_init();
    assert_int_equal(scratch_directory_make(node->root), 0);
    for (size_t i = 0; i < array_length(directories); i++) {
        node_path(node, directories[i], path);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    node_path(node, "/var/lib/crustd/crustd.db", path);
    if (store_open(&(struct store_options){.path = path, .boot_id = "boot", .max_rows = 1000000},
                   &node->store, &error))
        fail_msg("%s", error.text);
    node_fill(node);
    *state = node;
    return 0;
}

static inline int node_tear_down(void **state)
{
    struct node *node = *state;
    int r;

    store_close(node->store);
    r = scratch_directory_remove(node->root);
    free(node);
    return r;
}

/* Runs `crustctl --root NODE WORDS` with 80 columns, and so many for tables; what it printed is the
 * caller's. The exit code is returned. */
static inline int node_run_wide(const struct node *node, const char *words, unsigned table_width,
                                struct buffer *ret_out)
{
    char name[] = "crustctl", option[] = "--root";
    char root[SCRATCH_BYTES], line[256];
    char *argv[16] = {name, option, root};
    struct session session = {.width = 80, .table_width = table_width};
    struct options options;
    struct error error = {0};
    const struct command *command;
    int argc = 3;
    int code;

    (void)snprintf(root, sizeof(root), "%s", node->root);
    (void)snprintf(line, sizeof(line), "%s", words);
    for (char *rest = NULL, *word = strtok_r(line, " ", &rest); word && argc < 15;
         word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    assert_int_equal(options_parse(argc, argv, &options, &error), 0);
    command = command_find(options.command);
    assert_non_null(command);
    if (command_check(command, &options, &error) < 0)
        fail_msg("%s", error.text);
    session.options = &options;
    buffer_init(&session.out, 16 * MIB);
    if (source_open(&session.source, options.root, options.config_file, &error) < 0)
        fail_msg("%s", error.text);
    code = command->run(&session);
    source_close(&session.source);
    *ret_out = session.out;
    return code;
}

static inline int node_run(const struct node *node, const char *words, struct buffer *ret_out)
{
    return node_run_wide(node, words, 80, ret_out);
}
