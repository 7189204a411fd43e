/* SPDX-License-Identifier: Apache-2.0 */
/* in_use_test.c - who has a disk open, among processes that the test starts. */
#include "tests/unit/reconciler/drive/in_use_scenery.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/observe/hanging_reader.h"

/* ---- disks and their holders ---------------------------------------------------------------- */

static void loop_device(void)
{
    (void)snprintf(fixture->volume.image, sizeof(fixture->volume.image), "%.90s", fixture->path);
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

/* How many more descriptors a holder has, all before that of the disk. */
static unsigned more_descriptors;

static void open_more(void)
{
    for (unsigned i = 0; i < more_descriptors; i++)
        if (dup(STDERR_FILENO) < 0)
            _exit(1);
}

/* Becomes `program`, with the file open; "": as wait_with_many_pages(). Never returns. */
static void hold(char *program, const char *path, int flags, int ready)
{
    char duration[] = "600", *arguments[] = {program, duration, NULL};

    open_more();
    if (open(path, flags) < 0)
        _exit(1);
    if (!program[0])
        wait_with_many_pages(ready);
    (void)execv("/bin/sleep", arguments);
    _exit(1);
}

/* Not a child of this process, because crustd's own children do not count. */
static void start_holder(const char *program, const char *path, int flags)
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

static void end_holder(void)
{
    char path[32];

    assert_int_equal(kill(fixture->holder, SIGKILL), 0);
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/0", (int)fixture->holder);
    while (access(path, F_OK) == 0) /* until its descriptors are closed */
        (void)sched_yield();
    fixture->holder = 0;
}

/* ---- who counts ----------------------------------------------------------------------------- */

/* Of a VMM any access, unless both only read; of other programs only a writer's. */
static void who_has_the_file_open_is_named(void **state)
{
    static const struct {
        const char *program;
        int flags;
        bool writable;                /* what is asked for */
        const char *named, *accesses; /* NULL: nobody is in the way */
    } cases[] = {
        {"qemu-system-x86_64", O_RDWR, true, "(qemu-system-x86_64)", "writable"},
        {"qemu-system-x86_64", O_RDWR, false, "(qemu-system-x86_64)", "writable"},
        {"/usr/bin/cloud-hypervisor", O_RDONLY, false, NULL, NULL},
        {"/usr/bin/cloud-hypervisor", O_RDONLY, true, "cloud-hypervisor", "read-only"},
        {"blkid", O_RDONLY, true, NULL, NULL},
        {"a-daemon", O_PATH, true, NULL, NULL},
        {"qemu-storage-daemon\n", O_RDWR, true, "(qemu-storage-daemon", "writable"},
    };
    int own = open(fixture->path, O_RDWR | O_CLOEXEC); /* crustd's own claim */
    char process[32];

    assert_true(own >= 0);
    for (size_t i = 0; i < array_length(cases); i++) {
        start_holder(cases[i].program, fixture->path, cases[i].flags);
        fixture->request.writable = cases[i].writable;
        if (cases[i].named)
            expect_used(cases[i].named, cases[i].accesses);
        else
            expect_free();
        (void)snprintf(process, sizeof(process), "process %d (", (int)fixture->holder);
        assert_true(!cases[i].named || strstr(fixture->reply.error.text, process));
        fixture->request.own_vmm = fixture->holder;
        expect_free();
        fixture->request.own_vmm = 0;
        end_holder();
        expect_free();
    }
    fd_close(own);
}

/* The holder is the VMM of this sandbox. */
static void put_vmm(void)
{
    struct store_sandbox sandbox = sandbox_of("sandbox-9", NULL);

    sandbox.vmm_pid = fixture->holder;
    (void)put_sandbox(fixture->context.store, &sandbox, true);
}

/* It may be a VMM. */
static void a_reader_whose_arguments_cannot_be_read_is_a_doubt(void **state)
{
    start_holder("blkid", fixture->path, O_RDONLY);
    hung = fixture->holder;
    expect_outcome(DRIVE_IN_USE_UNKNOWN, "arguments cannot be read");
    hung = 0;
}

static void the_vmm_of_a_sandbox_is_named_with_it(void **state)
{
    start_holder("anything", fixture->path, O_RDONLY);
    put_vmm();
    expect_used("the VMM of sandbox sandbox-9", "read-only");
}

/* More than are examined of a process that is no sandbox's VMM. */
enum { MANY_DESCRIPTORS = 5000 };

static void a_vmm_with_many_descriptors_is_examined_whole(void **state)
{
    char other[sizeof(fixture->path)];
    struct rlimit limit, more;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    more = (struct rlimit){MANY_DESCRIPTORS + 64, limit.rlim_max};
    if (more.rlim_max < more.rlim_cur)
        more.rlim_max = more.rlim_cur;
    if (setrlimit(RLIMIT_NOFILE, &more) < 0)
        skip();
    more_descriptors = MANY_DESCRIPTORS;
    start_holder("anything", fixture->path, O_RDWR);
    more_descriptors = 0;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    expect_free();
    put_vmm();
    expect_used("the VMM of sandbox sandbox-9", "writable");
    (void)snprintf(other, sizeof(other), "%s/other.img", fixture->directory);
    make_file(other);
    fixture->disk = disk_of(other);
    expect_free();
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
    start_holder("anything", fixture->path, O_RDWR);
    set_may_examine(false);
    expect_free();
    put_vmm();
    expect_outcome(DRIVE_IN_USE_UNKNOWN, "sandbox-9, may not be examined");
    set_may_examine(true);
}

/* A user's FUSE file system, which tells nobody else about its files, root included. */
static int open_private_file_system(void)
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
    struct statx status;
    int file = open_private_file_system();

    if (file < 0 || statx(file, "", AT_EMPTY_PATH, STATX_INO, &status) == 0 || errno != EACCES) {
        fd_close(file);
        skip(); /* there is no FUSE here */
    }
    start_holder("dd", fixture->path, O_WRONLY);
    fd_close(file);
    fixture->request.writable = false;
    expect_used("(dd)", "writable");
}

/* Its memory is gone first. What it has written may not have reached the disk. */
static void a_process_has_the_disk_until_it_has_ended(void **state)
{
    char program[32], files[32], text[1];

    start_holder("", fixture->path, O_RDWR);
    put_vmm();
    (void)snprintf(program, sizeof(program), "/proc/%d/exe", (int)fixture->holder);
    (void)snprintf(files, sizeof(files), "/proc/%d/fd/0", (int)fixture->holder);
    assert_int_equal(kill(fixture->holder, SIGKILL), 0);
    fixture->holder = 0;
    while (readlink(program, text, sizeof(text)) > 0)
        (void)sched_yield();
    fixture->request.writable = false;
    search();
    if (fixture->reply.outcome == DRIVE_IN_USE_NOT && access(files, F_OK) < 0)
        skip(); /* it has ended meanwhile */
    assert_int_equal(fixture->reply.outcome, DRIVE_IN_USE_BY_OTHERS);
    assert_non_null(strstr(fixture->reply.error.text, "sandbox-9"));
}

static void a_block_device_is_found_by_its_number(void **state)
{
    char node[SCRATCH_BYTES + 16];
    struct stat status;

    loop_device();
    assert_int_equal(fstat(fixture->volume.loop, &status), 0);
    (void)snprintf(node, sizeof(node), "%s/node", fixture->directory);
    if (mknod(node, S_IFBLK | 0600, status.st_rdev) < 0)
        skip();
    fixture->disk = disk_of(node);
    expect_free();
    start_holder("firecracker", node, O_RDWR);
    fixture->request.writable = false;
    expect_used("(firecracker)", "writable");
}

static void what_a_loop_device_stands_on_counts_as_the_disk(void **state)
{
    fixture->backing = fixture->disk;
    fixture->request.backing = &fixture->backing;
    fixture->disk = (struct store_drive_mount_disk){
        .kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 4001}; /* which no process has */
    for (unsigned is_device = 0; is_device < 2; is_device++) {
        if (is_device) {
            loop_device();
            fixture->backing = disk_of(fixture->volume.device);
        }
        expect_free();
        start_holder("qemu-system-x86_64", is_device ? fixture->volume.device : fixture->path,
                     O_RDWR);
        expect_used("(qemu-system-x86_64) has the disk open", "writable");
        end_holder();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SEARCH(who_has_the_file_open_is_named),
        SEARCH(a_reader_whose_arguments_cannot_be_read_is_a_doubt),
        SEARCH(the_vmm_of_a_sandbox_is_named_with_it),
        SEARCH(a_vmm_with_many_descriptors_is_examined_whole),
        SEARCH(a_vmm_that_may_not_be_examined_is_a_doubt),
        SEARCH(a_file_that_may_not_be_examined_does_not_hide_those_after_it),
        SEARCH(a_process_has_the_disk_until_it_has_ended),
        SEARCH(a_block_device_is_found_by_its_number),
        SEARCH(what_a_loop_device_stands_on_counts_as_the_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
