/* SPDX-License-Identifier: Apache-2.0 */
/* in_use_test.c - who has a disk: on record, and open in processes that the test starts. */
#include "reconciler/drive/in_use.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "lib/clock.h"
#include "lib/loop.h"
#include "lib/namespaces.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "tests/unit/guest-agent/loop_volume.h"
#include "tests/unit/observe/hanging_reader.h"
#include "tests/unit/store/fixture.h"

struct search_fixture {
    char directory[SCRATCH_BYTES];
    struct loop loop;
    struct loop_timer watchdog;
    struct context context;
    struct loop_volume volume;
    pid_t holder;
    unsigned done;
    struct drive_in_use_reply reply;
};

static void on_watchdog(struct loop_timer *timer)
{
    (void)timer;
    fail_msg("the search does not end");
}

static int set_up(void **state)
{
    struct search_fixture *fixture = calloc(1, sizeof(*fixture));
    int root;

    assert_non_null(fixture);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    assert_int_equal(loop_init(&fixture->loop), 0);
    fixture->context.loop = &fixture->loop;
    fixture->context.store = fixture_open(NULL, "boot-1");
    assert_int_equal(path_open_root("/", &root), 0);
    assert_int_equal(observe_open_sysfs(root, "/sys", &fixture->context.sysfs), 0);
    fd_close(root);
    fixture->volume.loop = -1;
    loop_timer_start(&fixture->loop, &fixture->watchdog, 120 * NSEC_PER_SEC, on_watchdog);
    assert_int_equal(store_begin(fixture->context.store), 0);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct search_fixture *fixture = *state;
    int r;

    if (fixture->holder > 0)
        (void)kill(fixture->holder, SIGKILL);
    if (fixture->volume.loop >= 0)
        (void)ioctl(fixture->volume.loop, LOOP_CLR_FD);
    fd_close(fixture->volume.loop);
    loop_timer_stop(&fixture->watchdog);
    store_close(fixture->context.store);
    fd_close(fixture->context.sysfs);
    loop_done(&fixture->loop);
    r = scratch_directory_remove(fixture->directory);
    free(fixture);
    return r;
}

/* ---- disks and their holders ---------------------------------------------------------------- */

static void make_file(struct search_fixture *fixture, char ret_path[static 128])
{
    int fd;

    (void)snprintf(ret_path, 128, "%s/disk.img", fixture->directory);
    fd = open(ret_path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    fd_close(fd);
}

static struct store_drive_mount_disk disk_of(const char *path)
{
    struct store_drive_mount_disk disk = {.kind = DEVICE_KIND_FILE};
    struct stat status;

    assert_int_equal(stat(path, &status), 0);
    if (S_ISBLK(status.st_mode)) {
        disk.kind = DEVICE_KIND_BLOCK;
        disk.major = major(status.st_rdev);
        disk.minor = minor(status.st_rdev);
    } else {
        disk.file_device = status.st_dev;
        disk.inode = status.st_ino;
    }
    return disk;
}

static struct store_drive_mount_disk make_disk(struct search_fixture *fixture,
                                               char ret_path[static 128])
{
    make_file(fixture, ret_path);
    return disk_of(ret_path);
}

static void loop_device(struct search_fixture *fixture)
{
    char path[128];

    make_file(fixture, path);
    (void)snprintf(fixture->volume.image, sizeof(fixture->volume.image), "%.90s", path);
    loop_volume_attach(&fixture->volume);
    if (fixture->volume.loop < 0)
        skip(); /* this machine has no loop devices */
}

/* Waits to be killed, with so many pages that the kernel takes a while to free them. All are the
 * page of zeros, so they take 16 MiB. */
static _Noreturn void wait_with_many_pages(int ready)
{
    const size_t bytes = (size_t)8 << 30;
    char *pages = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (pages == MAP_FAILED || madvise(pages, bytes, MADV_NOHUGEPAGE) < 0 ||
        madvise(pages, bytes, MADV_POPULATE_READ) < 0)
        _exit(1);
    fd_close(ready);
    for (;;)
        (void)pause();
}

/* Becomes `program`, with the file open; "": as wait_with_many_pages(). Never returns. */
static void hold(char *program, const char *path, int flags, int ready)
{
    char duration[] = "600", *arguments[] = {program, duration, NULL};

    if (open(path, flags) < 0)
        _exit(1);
    if (!program[0])
        wait_with_many_pages(ready);
    (void)execv("/bin/sleep", arguments);
    _exit(1);
}

/* Not a child of this process, because crustd's own children do not count. */
static void start_holder(struct search_fixture *fixture, const char *program, const char *path,
                         int flags)
{
    int ready[2], status;
    pid_t child;

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char name[64];
        pid_t holder = fork();

        (void)snprintf(name, sizeof(name), "%s", program);
        if (holder == 0)
            hold(name, path, flags, ready[1]);
        _exit(write(ready[1], &holder, sizeof(holder)) == sizeof(holder) ? 0 : 1);
    }
    fd_close(ready[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(ready[0], &fixture->holder, sizeof(fixture->holder)),
                     sizeof(fixture->holder));
    assert_int_equal(read(ready[0], &status, 1), 0); /* it has become the program */
    fd_close(ready[0]);
}

static void end_holder(struct search_fixture *fixture)
{
    char path[32];

    assert_int_equal(kill(fixture->holder, SIGKILL), 0);
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/0", (int)fixture->holder);
    while (access(path, F_OK) == 0) /* until its descriptors are closed */
        (void)sched_yield();
    fixture->holder = 0;
}

/* ---- the search ----------------------------------------------------------------------------- */

static void on_done(struct drive_in_use_call *call, const struct drive_in_use_reply *reply,
                    void *userdata)
{
    struct search_fixture *fixture = userdata;

    fixture->done++;
    fixture->reply = *reply;
    (void)drive_in_use_call_free(call);
    loop_stop(&fixture->loop);
}

static void search(struct search_fixture *fixture, const struct drive_in_use_request *request)
{
    struct drive_in_use_call *call;

    if (!namespaces_show_all_processes())
        skip();
    fixture->done = 0;
    assert_int_equal(drive_in_use_call_new(&fixture->context, request, on_done, fixture, &call), 0);
    assert_int_equal(fixture->done, 0);
    loop_run(&fixture->loop);
    assert_int_equal(fixture->done, 1);
}

static void expect_free(struct search_fixture *fixture, const struct drive_in_use_request *request)
{
    search(fixture, request);
    if (fixture->reply.outcome != DRIVE_IN_USE_NOT)
        fail_msg("in use: %s", fixture->reply.error.text);
}

static void expect_used(struct search_fixture *fixture, const struct drive_in_use_request *request,
                        const char *who, const char *access)
{
    search(fixture, request);
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_BY_OTHERS);
    if (!strstr(fixture->reply.error.text, who) || !strstr(fixture->reply.error.text, access))
        fail_msg("\"%s\" says nothing of \"%s\", %s", fixture->reply.error.text, who, access);
}

static void a_file_that_nobody_has_is_free(void **state)
{
    struct search_fixture *fixture = *state;
    char path[128];
    struct store_drive_mount_disk disk;
    int own;

    disk = make_disk(fixture, path);
    own = open(path, O_RDWR | O_CLOEXEC); /* crustd's own claim */
    assert_true(own >= 0);
    expect_free(fixture, &(struct drive_in_use_request){.disk = &disk, .writable = true});
    fd_close(own);
}

static void a_vmm_that_has_the_file_open_is_named(void **state)
{
    struct search_fixture *fixture = *state;
    struct drive_in_use_request request = {.writable = true};
    char path[128], name[64];
    struct store_drive_mount_disk disk;

    disk = make_disk(fixture, path);
    request.disk = &disk;
    start_holder(fixture, "qemu-system-x86_64", path, O_RDWR);
    (void)snprintf(name, sizeof(name), "process %d (qemu-system-x86_64)", (int)fixture->holder);
    expect_used(fixture, &request, name, "writable");
    request.writable = false;
    expect_used(fixture, &request, name, "writable");
    request.own_vmm = fixture->holder;
    expect_free(fixture, &request);
    request.own_vmm = 0;
    end_holder(fixture);
    expect_free(fixture, &request);
}

static void readers_do_not_hinder_a_reader(void **state)
{
    struct search_fixture *fixture = *state;
    struct drive_in_use_request request = {.writable = false};
    char path[128];
    struct store_drive_mount_disk disk;

    disk = make_disk(fixture, path);
    request.disk = &disk;
    start_holder(fixture, "/usr/bin/cloud-hypervisor", path, O_RDONLY);
    expect_free(fixture, &request);
    request.writable = true;
    expect_used(fixture, &request, "cloud-hypervisor", "read-only");
}

static void among_other_programs_only_writers_count(void **state)
{
    struct search_fixture *fixture = *state;
    char path[128];
    struct store_drive_mount_disk disk;
    struct drive_in_use_request request = {.disk = &disk, .writable = true};

    disk = make_disk(fixture, path);
    start_holder(fixture, "blkid", path, O_RDONLY);
    expect_free(fixture, &request);
    end_holder(fixture);
    start_holder(fixture, "a-daemon", path, O_PATH);
    expect_free(fixture, &request);
    end_holder(fixture);
    start_holder(fixture, "qemu-storage-daemon\n", path, O_RDWR);
    expect_used(fixture, &request, "(qemu-storage-daemon", "writable");
}

/* It may be a VMM. */
static void a_reader_whose_arguments_cannot_be_read_is_a_doubt(void **state)
{
    struct search_fixture *fixture = *state;
    char path[128];
    struct store_drive_mount_disk disk;
    struct drive_in_use_request request = {.disk = &disk, .writable = true};

    disk = make_disk(fixture, path);
    start_holder(fixture, "blkid", path, O_RDONLY);
    hung = fixture->holder;
    search(fixture, &request);
    hung = 0;
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_UNKNOWN);
    assert_non_null(strstr(fixture->reply.error.text, "arguments cannot be read"));
}

static void on_prepare(struct loop_prepare *prepare)
{
    (void)prepare;
    assert_true(slow_answers <= 1);
    slow_answers = 0;
}

/* Anybody who may read a disk's file can have it open many times. */
static void a_pass_waits_for_one_slow_answer(void **state)
{
    struct search_fixture *fixture = *state;
    char path[128];
    struct store_drive_mount_disk disk;
    struct drive_in_use_request request = {.disk = &disk, .writable = true};
    struct loop_prepare prepare = {0};
    int own;

    disk = make_disk(fixture, path);
    own = open(path, O_RDONLY); /* the holder inherits it */
    assert_true(own >= 0);
    start_holder(fixture, "blkid", path, O_RDONLY);
    loop_prepare_start(&fixture->loop, &prepare, on_prepare);
    slow = fixture->holder;
    slow_answers = 0;
    expect_free(fixture, &request);
    on_prepare(&prepare);
    slow = 0;
    loop_prepare_stop(&prepare);
    fd_close(own);
}

static void the_vmm_of_a_sandbox_is_named_with_it(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_sandbox sandbox = sandbox_of("sandbox-9", NULL);
    char path[128];
    struct store_drive_mount_disk disk;

    disk = make_disk(fixture, path);
    start_holder(fixture, "anything", path, O_RDONLY);
    sandbox.vmm_pid = fixture->holder;
    (void)put_sandbox(fixture->context.store, &sandbox, true);
    expect_used(fixture, &(struct drive_in_use_request){.disk = &disk, .writable = true},
                "the VMM of sandbox sandbox-9", "read-only");
}

/* Gives up the right to examine processes with more capabilities, or takes it back. */
static void set_may_examine(bool may)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

    assert_int_equal(syscall(SYS_capget, &header, sets), 0);
    if (may)
        sets[0].effective |= 1U << CAP_SYS_PTRACE;
    else
        sets[0].effective &= ~(1U << CAP_SYS_PTRACE);
    assert_int_equal(syscall(SYS_capset, &header, sets), 0);
}

/* Its open files are listed, and what they are is not said. */
static void a_vmm_that_may_not_be_examined_is_a_doubt(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_sandbox sandbox = sandbox_of("sandbox-9", NULL);
    char path[128];
    struct store_drive_mount_disk disk;
    struct drive_in_use_request request = {.disk = &disk, .writable = true};

    disk = make_disk(fixture, path);
    start_holder(fixture, "anything", path, O_RDWR);
    set_may_examine(false);
    search(fixture, &request);
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_NOT);
    sandbox.vmm_pid = fixture->holder;
    (void)put_sandbox(fixture->context.store, &sandbox, true);
    search(fixture, &request);
    set_may_examine(true);
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_UNKNOWN);
    assert_non_null(strstr(fixture->reply.error.text, "sandbox-9, may not be examined"));
}

/* A user's FUSE file system, which tells nobody else about its files, root included. */
static int open_private_file_system(const struct search_fixture *fixture)
{
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC), file = -1;
    char place[96], options[96];

    (void)snprintf(place, sizeof(place), "%s/private", fixture->directory);
    (void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=12345,group_id=12345",
                   device);
    assert_int_equal(mkdir(place, 0700), 0);
    if (device >= 0 && mount("private", place, "fuse", MS_NODEV | MS_NOSUID, options) == 0) {
        file = open(place, O_PATH); /* for the holder */
        assert_int_equal(umount2(place, MNT_DETACH), 0);
    }
    fd_close(device);
    return file;
}

static void a_file_that_may_not_be_examined_does_not_hide_those_after_it(void **state)
{
    struct search_fixture *fixture = *state;
    struct statx status;
    char path[128];
    struct store_drive_mount_disk disk = make_disk(fixture, path);
    int file = open_private_file_system(fixture);

    if (file < 0 || statx(file, "", AT_EMPTY_PATH, STATX_INO, &status) == 0 || errno != EACCES) {
        fd_close(file);
        skip(); /* there is no FUSE here */
    }
    start_holder(fixture, "dd", path, O_WRONLY);
    fd_close(file);
    expect_used(fixture, &(struct drive_in_use_request){.disk = &disk}, "(dd)", "writable");
}

/* Its memory is gone first. What it has written may not have reached the disk. */
static void a_process_has_the_disk_until_it_has_ended(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_sandbox sandbox = sandbox_of("sandbox-9", NULL);
    char path[128], program[32], files[32], text[1];
    struct store_drive_mount_disk disk = make_disk(fixture, path);

    start_holder(fixture, "", path, O_RDWR);
    sandbox.vmm_pid = fixture->holder;
    (void)put_sandbox(fixture->context.store, &sandbox, true);
    (void)snprintf(program, sizeof(program), "/proc/%d/exe", (int)fixture->holder);
    (void)snprintf(files, sizeof(files), "/proc/%d/fd/0", (int)fixture->holder);
    assert_int_equal(kill(fixture->holder, SIGKILL), 0);
    fixture->holder = 0;
    while (readlink(program, text, sizeof(text)) > 0)
        (void)sched_yield();
    search(fixture, &(struct drive_in_use_request){.disk = &disk});
    if (fixture->reply.outcome == DRIVE_IN_USE_NOT && access(files, F_OK) < 0)
        skip(); /* it has ended meanwhile */
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_BY_OTHERS);
    assert_non_null(strstr(fixture->reply.error.text, "sandbox-9"));
}

static void a_block_device_is_found_by_its_number(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_drive_mount_disk disk;
    char node[128];
    struct stat status;

    loop_device(fixture);
    assert_int_equal(fstat(fixture->volume.loop, &status), 0);
    (void)snprintf(node, sizeof(node), "%s/node", fixture->directory);
    if (mknod(node, S_IFBLK | 0600, status.st_rdev) < 0)
        skip();
    disk = disk_of(node);
    expect_free(fixture, &(struct drive_in_use_request){.disk = &disk, .writable = true});
    start_holder(fixture, "firecracker", node, O_RDWR);
    expect_used(fixture, &(struct drive_in_use_request){.disk = &disk, .writable = false},
                "(firecracker)", "writable");
}

/* ---- related devices ------------------------------------------------------------------------ */

/* A number that no process of this machine has open. */
static const struct store_drive_mount_disk recorded = {
    .kind = DEVICE_KIND_BLOCK, .major = 4001, .minor = 1, .diskseq = 3};

__attribute__((format(printf, 3, 4))) static void
put_number(const struct search_fixture *fixture, const char *text, const char *format, ...)
{
    char name[64], path[256], *slash;
    va_list arguments;
    FILE *file;

    va_start(arguments, format);
    (void)vsnprintf(name, sizeof(name), format, arguments);
    va_end(arguments);
    (void)snprintf(path, sizeof(path), "%s/dev/block/%s", fixture->directory, name);
    slash = strrchr(path, '/');
    *slash = '\0';
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    *slash = '/';
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A sysfs of the test's own, with one disk. */
static void make_sysfs(struct search_fixture *fixture)
{
    char path[128];

    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/dev%s", fixture->directory, i ? "/block" : "");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    fd_close(fixture->context.sysfs);
    fixture->context.sysfs = open(fixture->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fixture->context.sysfs >= 0);
    put_number(fixture, "2048\n", "4001:1/size");
}

static void add_partitions(const struct search_fixture *fixture, unsigned first, unsigned last)
{
    char text[32];

    for (unsigned i = first; i <= last; i++) {
        (void)snprintf(text, sizeof(text), "4002:%u\n", i);
        put_number(fixture, "1\n", "4001:1/p%u/partition", i);
        put_number(fixture, text, "4001:1/p%u/dev", i);
    }
}

static void expect_unknown(struct search_fixture *fixture)
{
    search(fixture, &(struct drive_in_use_request){.disk = &recorded, .writable = true});
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_UNKNOWN);
    assert_non_null(strstr(fixture->reply.error.text, "more partitions or lower devices"));
}

static void a_partition_that_is_left_out_may_have_a_user(void **state)
{
    struct search_fixture *fixture = *state;

    make_sysfs(fixture);
    add_partitions(fixture, 1, 256); /* as many as there can be */
    expect_free(fixture, &(struct drive_in_use_request){.disk = &recorded, .writable = true});
    add_partitions(fixture, 257, 400);
    expect_unknown(fixture);
}

static void names_that_are_not_read_may_be_partitions(void **state)
{
    struct search_fixture *fixture = *state;

    make_sysfs(fixture);
    for (unsigned i = 0; i < 600; i++)
        put_number(fixture, "1\n", "4001:1/attribute%u", i);
    expect_unknown(fixture);
}

static void a_lower_device_that_is_left_out_may_have_a_user(void **state)
{
    struct search_fixture *fixture = *state;
    char text[32];

    make_sysfs(fixture);
    put_number(fixture, "x\n", "4001:1/slaves/x"); /* no device */
    expect_free(fixture, &(struct drive_in_use_request){.disk = &recorded, .writable = true});
    for (unsigned i = 0; i < OBSERVE_LAYERS; i++) {
        (void)snprintf(text, sizeof(text), "4002:%u\n", i);
        put_number(fixture, "2048\n", "4002:%u/size", i);
        put_number(fixture, text, "4001:1/slaves/disk%u/dev", i);
    }
    expect_unknown(fixture);
}

/* ---- on record ------------------------------------------------------------------------------ */

static void bind_volume(struct store *store)
{
    struct store_device device = device_of(1, GIB);
    struct bound bound = put_bound(store);

    device.major = recorded.major;
    assert_int_equal(
        store_open_binding(store,
                           &(struct store_binding){.volume_id = bound.volume_id,
                                                   .sandbox_ref = bound.sandbox_ref,
                                                   .device_id = put_device(store, &device, true),
                                                   .source = "persist",
                                                   .record = 1}),
        0);
}

static void a_volume_of_a_live_sandbox_has_the_disk(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_drive_mount_disk disk = recorded;
    struct drive_in_use_request request = {.disk = &disk, .writable = false};
    bool changed;

    bind_volume(fixture->context.store);
    expect_used(fixture, &request, "sandbox-1 has the disk as volume " VOLUME_PATH, "writable");
    disk.diskseq = 0; /* not known */
    expect_used(fixture, &request, "sandbox-1", "writable");
    disk.diskseq = 4; /* another disk of the same number */
    expect_free(fixture, &request);
    disk.diskseq = 3;
    assert_int_equal(store_end_sandbox(fixture->context.store, "sandbox-1", &changed), 0);
    expect_free(fixture, &request);
}

static void a_read_only_volume_does_not_hinder_a_reader(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_drive_mount_disk disk = recorded;
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    bool changed;
    int64_t volume_id;

    bind_volume(fixture->context.store);
    entry.options = "[\"ro\",\"noatime\"]";
    entry.mount_info_sha256 = "bb";
    assert_int_equal(store_put_entry(fixture->context.store, &entry, &volume_id, &changed), 0);
    expect_free(fixture, &(struct drive_in_use_request){.disk = &disk, .writable = false});
    expect_used(fixture, &(struct drive_in_use_request){.disk = &disk, .writable = true}, "volume",
                "read-only");
}

static void another_drive_has_the_disk(void **state)
{
    struct search_fixture *fixture = *state;
    struct store_drive_mount_disk disk = {
        .kind = DEVICE_KIND_FILE, .file_device = 1, .inode = UINT64_C(1) << 63};
    struct store_drive_mount_request asked = {.drive_id = "data-1",
                                              .sandbox_id = "sandbox-1",
                                              .host_path = "/srv/disk.img",
                                              .vm_path = "/data",
                                              .fs_type = "ext4",
                                              .writable = true};
    int64_t drive_ref;

    (void)put_bound(fixture->context.store);
    assert_int_equal(
        store_add_drive_mount(fixture->context.store, &asked, "crust-abcdefghijklmn", &drive_ref),
        0);
    expect_free(fixture, &(struct drive_in_use_request){.disk = &disk, .writable = true});
    assert_int_equal(store_set_drive_mount_disk(fixture->context.store, drive_ref, &disk), 0);
    expect_used(
        fixture,
        &(struct drive_in_use_request){.disk = &disk, .drive_id = "data-2", .writable = true},
        "sandbox-1 has the disk as drive data-1", "writable");
    expect_free(fixture, &(struct drive_in_use_request){
                             .disk = &disk, .drive_id = "data-1", .writable = true});
}

static void freed_search_calls_nobody_back(void **state)
{
    struct search_fixture *fixture = *state;
    struct drive_in_use_call *call;

    assert_int_equal(
        drive_in_use_call_new(&fixture->context,
                              &(struct drive_in_use_request){.disk = &recorded, .writable = true},
                              on_done, fixture, &call),
        0);
    assert_null(drive_in_use_call_free(call));
    assert_null(drive_in_use_call_free(NULL));
    loop_timer_stop(&fixture->watchdog);
    loop_run(&fixture->loop); /* nothing is left to do */
    assert_int_equal(fixture->done, 0);
}

#define SEARCH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SEARCH(a_file_that_nobody_has_is_free),
        SEARCH(a_vmm_that_has_the_file_open_is_named),
        SEARCH(readers_do_not_hinder_a_reader),
        SEARCH(among_other_programs_only_writers_count),
        SEARCH(a_reader_whose_arguments_cannot_be_read_is_a_doubt),
        SEARCH(a_pass_waits_for_one_slow_answer),
        SEARCH(the_vmm_of_a_sandbox_is_named_with_it),
        SEARCH(a_vmm_that_may_not_be_examined_is_a_doubt),
        SEARCH(a_file_that_may_not_be_examined_does_not_hide_those_after_it),
        SEARCH(a_process_has_the_disk_until_it_has_ended),
        SEARCH(a_block_device_is_found_by_its_number),
        SEARCH(a_partition_that_is_left_out_may_have_a_user),
        SEARCH(names_that_are_not_read_may_be_partitions),
        SEARCH(a_lower_device_that_is_left_out_may_have_a_user),
        SEARCH(a_volume_of_a_live_sandbox_has_the_disk),
        SEARCH(a_read_only_volume_does_not_hinder_a_reader),
        SEARCH(another_drive_has_the_disk),
        SEARCH(freed_search_calls_nobody_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
