/* SPDX-License-Identifier: Apache-2.0 */
/* fake_node.h - a whole reconciler on a node that needs no root: directories and a store below a
 * scratch root, and readers of devices, sandboxes and processes that answer from tables.
 *
 * What is defined here takes the place of observe/observed_sandbox.c and process_scan.c, and in
 * fake_devices.h of device.c.
 */
#pragma once

#include "tests/unit/reconciler/fake_devices.h"
#include "tests/unit/tree.h"

#include <poll.h>

#include "lib/clock.h"
#include "lib/encode.h"
#include "lib/loop.h"
#include "lib/process.h"
#include "lib/workers.h"
#include "observe/observe.h"
#include "observe/observed_sandbox.h"
#include "observe/process_scan.h"
#include "reconciler/core/database.h"
#include "reconciler/core/reconciler_internal.h"
#include "store/cleanups.h"
#include "store/store.h"

#define KATA_VOLUMES  "/run/kata-containers/shared/direct-volumes"
#define CRUST_VOLUMES "/run/crust"
#define PODS          "/var/lib/kubelet/pods"
#define TARGET        PODS "/uid-1/volumes/kubernetes.io~csi/pv-1/mount"
#define OTHER_TARGET  PODS "/uid-2/volumes/kubernetes.io~csi/pv-2/mount"
#define GIB           (UINT64_C(1) << 30)
#define DISK          "/dev/disk-1"

struct fake_sandbox {
    const char *id;
    bool is_there, ended; /* its directory; no VMM */
    pid_t pid;
    uint64_t start_ns;       /* of the VMM; 0: any */
    int failure;             /* -errno: it cannot be read */
    bool try_again, is_slow; /* is_slow: to be read */
    bool unrecorded;         /* only its VMM is there */
    const char *claims;      /* the path that a container mounts; NULL */
    const char *guest_path;  /* where it is in the guest; NULL */
    const char *problem;
    const char *bundles;
};

static struct fake_sandbox fake_sandbox[FAKES];
static const char *fake_owner; /* of any bundle */
static int fake_owner_result;
static bool fake_process, fake_cgroup, fake_sees_host;
static bool fake_watcher_down;
static pid_t fake_unpinned;
static unsigned fake_settled, fake_synced, fake_checks, fake_restarts;
static int fake_failure; /* why the last restart was asked for */
static void (*fake_when_restarted)(void);
static bool fake_pin_fails;
static void (*fake_when_synced)(void); /* what happens between the first scan and what follows it */
static bool fake_goes_on; /* the loop, although nothing is left to do: somebody else stops it */

static unsigned fake_slow; /* observations */
static unsigned fake_refreshes;
static unsigned fake_unread; /* parts of a reading of the processes that has begun */

static struct loop loop;
static struct store *store;
static struct config config;
static struct instance instance;
static struct reconciler *reconciler;

/* ---- sandboxes ---------------------------------------------------------------------------- */

static char *copy_text(const char *text)
{
    return text ? strdup(text) : NULL;
}

static struct fake_sandbox *find_sandbox(const char *sandbox_id)
{
    for (unsigned i = 0; i < FAKES; i++)
        if (fake_sandbox[i].id && strcmp(fake_sandbox[i].id, sandbox_id) == 0)
            return &fake_sandbox[i];
    return NULL;
}

int observe_sandbox(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *ret_sandbox)
{
    const struct fake_sandbox *fake = find_sandbox(sandbox_id);

    if (!fake || !fake->is_there)
        return OBSERVED_ABSENT;
    if (fake->is_slow) {
        (void)poll(NULL, 0, 20);
        fake_slow++;
    }
    if (fake->failure)
        return fake->failure;
    *ret_sandbox = (struct observed_sandbox){.alive = !fake->ended,
                                             .unrecorded = fake->unrecorded,
                                             .runtime = RUNTIME_KATA_GO,
                                             .hypervisor = HYPERVISOR_QEMU,
                                             .vmm_pid = fake->pid,
                                             .vmm_start_ns = fake->start_ns ? fake->start_ns : 5,
                                             .try_again = fake->try_again,
                                             .control_socket = copy_text("/run/vc/vm/no-monitor"),
                                             .agent_address = copy_text("vsock://3:1024"),
                                             .bundles = copy_text(fake->bundles),
                                             .problem = copy_text(fake->problem)};
    if (fake->claims) {
        ret_sandbox->claim = calloc(1, sizeof(*ret_sandbox->claim));
        assert_non_null(ret_sandbox->claim);
        ret_sandbox->claims = 1;
        ret_sandbox->claim[0] = (struct observed_claim){.path = copy_text(fake->claims),
                                                        .source = "bundle",
                                                        .guest_path = copy_text(fake->guest_path),
                                                        .carrier = CARRIER_UNKNOWN,
                                                        .drive = -1};
    }
    return OBSERVED;
}

void observed_sandbox_done(struct observed_sandbox *sandbox)
{
    for (unsigned i = 0; i < sandbox->claims; i++) {
        free(sandbox->claim[i].path);
        free(sandbox->claim[i].guest_path);
    }
    free(sandbox->claim);
    free(sandbox->drive);
    free(sandbox->problem);
    free(sandbox->control_socket);
    free(sandbox->agent_address);
    free(sandbox->bundles);
    *sandbox = (struct observed_sandbox){0};
}

int observe_cache_new(const char *grow_annotation, struct observe_cache **ret_cache)
{
    *ret_cache = NULL;
    return 0;
}

struct observe_cache *observe_cache_free(struct observe_cache *cache)
{
    return NULL;
}

/* In two parts. */
int observe_cache_refresh(struct observe_cache *cache)
{
    fake_refreshes++;
    return fake_refreshes % 2 ? PROGRESS_MORE : PROGRESS_DONE;
}

int observe_cache_read_on(struct observe_cache *cache)
{
    fake_unread -= fake_unread > 0;
    return fake_unread ? PROGRESS_MORE : PROGRESS_DONE;
}

/* Nothing is judged by processes of which a part was read. */
void observe_cache_hold(struct observe_cache *cache, bool is_held)
{
    assert_int_equal(fake_refreshes % 2, 0);
    assert_true(fake_refreshes > 0 || !is_held);
}

int observe_bundle_owner(const struct observe_sandbox_paths *paths, const char *parent,
                         const char *container_id,
                         char ret_sandbox_id[static OBSERVE_SANDBOX_ID_BYTES])
{
    assert_non_null(parent);
    (void)snprintf(ret_sandbox_id, OBSERVE_SANDBOX_ID_BYTES, "%s", fake_owner ? fake_owner : "");
    return fake_owner_result;
}

/* ---- VMMs without a shim ------------------------------------------------------------------ */

static enum observed_shim fake_shim;
static uint32_t
    fake_held_minor; /* of the device that a VMM has open; 0: its files cannot be read */

int observe_shim(struct observe_cache *cache, const char *sandbox_id, pid_t vmm_pid,
                 uint64_t vmm_start_ns, bool has_records)
{
    assert_true(vmm_pid > 0 && vmm_start_ns > 0);
    return (int)fake_shim;
}

int observe_held_drives(pid_t pid, uint64_t start_ns, struct observed_sandbox *ret_held)
{
    if (!fake_held_minor)
        return -EACCES;
    ret_held->drive = calloc(1, sizeof(*ret_held->drive));
    assert_non_null(ret_held->drive);
    ret_held->drives = 1;
    ret_held->drive[0] = (struct observed_drive){.major = 7, .minor = fake_held_minor};
    return 0;
}

int observe_each_vmm(struct observe_cache *cache,
                     int (*callback)(void *userdata, const char *sandbox_id, pid_t pid,
                                     uint64_t start_ns),
                     void *userdata)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < FAKES; i++)
        if (fake_sandbox[i].unrecorded)
            r = callback(userdata, fake_sandbox[i].id, fake_sandbox[i].pid, 5);
    return r;
}

/* ---- processes ---------------------------------------------------------------------------- */

struct process_scan {
    unsigned asked;
};

int process_scan_new(struct process_scan **ret_scan)
{
    *ret_scan = calloc(1, sizeof(**ret_scan));
    return *ret_scan ? 0 : -ENOMEM;
}

struct process_scan *process_scan_free(struct process_scan *process_scan)
{
    free(process_scan);
    return NULL;
}

int process_scan_ask(struct process_scan *process_scan, const char *sandbox_id)
{
    process_scan->asked++;
    return 0;
}

int process_scan_step(struct process_scan *process_scan)
{
    return 0;
}

pid_t process_scan_get_process(const struct process_scan *process_scan, const char *sandbox_id)
{
    return 0;
}

bool process_scan_has_process(const struct process_scan *process_scan, const char *sandbox_id)
{
    return fake_process;
}

bool process_scan_has_cgroup(const struct process_scan *process_scan, const char *sandbox_id)
{
    return fake_cgroup;
}

uint64_t process_scan_kubelet_start(const struct process_scan *process_scan)
{
    return 0;
}

bool namespaces_show_all_processes(void)
{
    return fake_sees_host;
}

/* ---- watchers ----------------------------------------------------------------------------- */

static char fake_watched[64]; /* the path of TREE_BUNDLES; "": none */

int watch_directories_add_tree(struct watch_directories *watch, const char *path,
                               unsigned *ret_tree)
{
    if (fake_watched[0])
        return -ENOSPC;
    (void)snprintf(fake_watched, sizeof(fake_watched), "%s", path);
    *ret_tree = TREE_BUNDLES;
    return 0;
}

void watch_directories_remove_tree(struct watch_directories *watch, unsigned tree)
{
    assert_int_equal(tree, TREE_BUNDLES);
    fake_watched[0] = '\0';
}

int watch_directories_arm(struct watch_directories *watch, unsigned tree, const char *name)
{
    return 0;
}

int watch_directories_arm_opened(struct watch_directories *watch, unsigned tree, const char *name,
                                 int opened, int child)
{
    return 0;
}

int watch_processes_add(struct watch_processes *watch, const char *sandbox_id, pid_t pid)
{
    return fake_pin_fails;
}

pid_t watch_processes_remove(struct watch_processes *watch, const char *sandbox_id)
{
    return fake_unpinned;
}

void watchers_check(struct watchers *watchers)
{
    fake_checks++;
}

void watchers_report(const struct watchers *watchers, struct reconciler_health *ret_health)
{
    ret_health->source[ret_health->sources++] =
        (struct reconciler_source){.name = "inotify", .up = !fake_watcher_down};
}

static inline void queue_all_volumes(void)
{
    work_queue_doubt_devices(&reconciler->queue);
    work_queue_add_all_volumes(&reconciler->queue);
}

/* ---- the reconciler ----------------------------------------------------------------------- */

static void on_fake_synced(void *userdata)
{
    fake_synced++;
    if (fake_when_synced)
        fake_when_synced();
}

static void on_fake_restart(void *userdata, int failure, const char *why)
{
    fake_failure = failure;
    fake_restarts++;
    if (fake_when_restarted)
        fake_when_restarted();
}

static void on_fake_settled(void *userdata)
{
    fake_settled++;
    if (!fake_goes_on)
        loop_stop(&loop);
}

static inline void open_store(void)
{
    struct store_opening opening;
    struct error error = {0};

    instance_init(&instance, root, scratch, &config);
    if (instance_take_place(&instance, &error) != INSTANCE_ALONE ||
        instance_open_store(&instance, &config, INSTANCE_STORE_FILE, NULL, &store, &opening,
                            &error) != STORE_OPENED)
        fail_msg("no store: %s", error.text);
}

static inline void make_reconciler(const struct error *why_in_memory)
{
    struct reconciler_options options = {.loop = &loop,
                                         .store = store,
                                         .instance = &instance,
                                         .why_in_memory = why_in_memory,
                                         .config = &config,
                                         .root = root,
                                         .synced = on_fake_synced,
                                         .settled = on_fake_settled,
                                         .restart = on_fake_restart};
    struct error error = {0};

    if (reconciler_new(&options, &reconciler, &error) < 0)
        fail_msg("reconciler_new: %s", error.text);
}

static int node_start(void **state)
{
    clear_devices();
    memset(fake_sandbox, 0, sizeof(fake_sandbox));
    fake_owner = NULL;
    fake_owner_result = 0;
    fake_watched[0] = '\0';
    fake_process = fake_cgroup = fake_watcher_down = fake_pin_fails = fake_goes_on = false;
    fake_sees_host = true;
    fake_when_synced = fake_when_restarted = NULL;
    fake_restarts = 0;
    fake_unpinned = 0;
    fake_settled = fake_synced = fake_checks = fake_slow = 0;
    fake_shim = OBSERVED_SHIM_RUNS;
    fake_held_minor = 0;
    instance = (struct instance)INSTANCE_INIT;
    if (tree_start(state) < 0 || workers_fork_nursery() < 0 || loop_init(&loop) < 0)
        return -1;
    workers_start(&loop, NULL, NULL);
    config_defaults(&config);
    config.resize.settle_ms = 0;
    config.guest.stats_seconds = 0;
    config.guest.helper = false;
    tree_make(config.paths.sysfs);
    tree_make(KATA_VOLUMES);
    tree_make(CRUST_VOLUMES);
    tree_make(PODS);
    open_store();
    return 0;
}

static int node_stop(void **state)
{
    reconciler = reconciler_free(reconciler);
    store_close(store);
    instance_done(&instance);
    workers_stop();
    loop_done(&loop);
    return tree_stop(state);
}

#define NODE(test) cmocka_unit_test_setup_teardown(test, node_start, node_stop)

/* Until nothing is left to do now. */
static inline void settle(void)
{
    unsigned before = fake_settled;

    while (fake_settled == before)
        loop_run_once(&loop);
}

static inline void run_node(void)
{
    make_reconciler(NULL);
    reconciler_start(reconciler);
    settle();
}

/* ---- what is on it ------------------------------------------------------------------------ */

static inline const char *key_of(const char *target)
{
    static char key[256];

    assert_true(BASE64URL_ENCODED_LENGTH(strlen(target)) < sizeof(key));
    base64url_encode(target, strlen(target), key);
    return key;
}

/* A volume's metadata directory, with a sandbox's file in it where one is given. */
static inline void stage_at(const char *volumes, const char *target, const char *device,
                            const char *sandbox_id)
{
    char path[600], json[512];

    (void)snprintf(path, sizeof(path), "%s/%s", volumes, key_of(target));
    tree_make(path);
    (void)snprintf(json, sizeof(json),
                   "{\"volume-type\":\"block\",\"device\":\"%s\",\"fstype\":\"ext4\"}", device);
    (void)snprintf(path, sizeof(path), "%s/%s/mountInfo.json", volumes, key_of(target));
    tree_write(path, json);
    if (!sandbox_id)
        return;
    (void)snprintf(path, sizeof(path), "%s/%s/%s", volumes, key_of(target), sandbox_id);
    tree_write(path, "");
}

static inline void stage(const char *target, const char *device, const char *sandbox_id)
{
    stage_at(KATA_VOLUMES, target, device, sandbox_id);
}

static inline void unstage(const char *volumes, const char *target)
{
    char path[600];

    (void)snprintf(path, sizeof(path), "%s/%s", volumes, key_of(target));
    assert_int_equal(scratch_directory_remove(tree_path(path)), 0);
}

static inline void start_sandbox(unsigned place, const char *id)
{
    char path[256];

    fake_sandbox[place] = (struct fake_sandbox){.id = id, .is_there = true, .pid = 4000000};
    (void)snprintf(path, sizeof(path), "/run/vc/sbs/%s", id);
    tree_make(path);
}

static int note_only(void *userdata, int64_t volume_id)
{
    *(int64_t *)userdata = volume_id;
    return 0;
}

/* The last volume on record, 0 if there is none. */
static inline int64_t last_volume(void)
{
    int64_t volume_id = 0;

    assert_int_equal(store_each_volume(store, STORE_SEARCH(ALL), note_only, &volume_id), 0);
    return volume_id;
}

static inline struct store_volume volume_of(int64_t volume_id)
{
    struct store_volume volume;

    assert_int_equal(store_get_volume(store, volume_id, &volume), 0);
    return volume;
}

static inline void assert_is(int64_t volume_id, enum volume_state state, enum volume_reason reason)
{
    struct store_volume volume = volume_of(volume_id);

    if (volume.state != state || volume.reason != reason)
        fail_msg("%s/%s, not %s/%s", state_name(volume.state), reason_name(volume.reason),
                 state_name(state), reason_name(reason));
}

/* A volume in a sandbox. */
static inline int64_t bind_one(void)
{
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    run_node();
    assert_true(volume_of(last_volume()).binding_id != 0);
    return last_volume();
}
