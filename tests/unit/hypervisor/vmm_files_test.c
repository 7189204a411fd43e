/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_files_test.c - which of a process' files could be behind a drive; the process is this one. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "lib/process.h"
#include "lib/process_reader.h"
#include "tests/unit/scratch.h"

enum { MOST = 64 };

struct fixture {
    char directory[SCRATCH_BYTES];
    char path[SCRATCH_BYTES + 16];
    int sysfs;
    struct vmm_process process;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    struct hypervisor_request request = {.vmm_pid = getpid()};

    assert_int_equal(scratch_directory_make(fixture.directory), 0);
    (void)snprintf(fixture.path, sizeof(fixture.path), "%s/file", fixture.directory);
    assert_int_equal(path_open_root("/sys", &fixture.sysfs), 0);
    request.sysfs = fixture.sysfs;
    assert_int_equal(vmm_process_init(&fixture.process, &request, NULL), 0);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    vmm_process_done(&fixture->process);
    fd_close(fixture->sysfs);
    return scratch_directory_remove(fixture->directory);
}

static pid_t find_child(const char *wanted)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    pid_t found = 0;

    while (proc && !found && (entry = readdir(proc))) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        struct buffer name = BUFFER_INIT(64);
        struct process process;

        if (pid > 0 && process_read(pid, &process) == 0 && process.parent == getpid() &&
            process_read_file(pid, "comm", &name) == 0 && strcmp(buffer_text(&name), wanted) == 0)
            found = pid;
        buffer_done(&name);
    }
    (void)closedir(proc);
    return found;
}

enum { TIME_IS_OVER = -ETIME };

/* The process that reads the mappings may be late on a busy machine. */
static int list(struct vmm_resolver *resolver, struct vmm_file files[static MOST],
                size_t *ret_count)
{
    int r = TIME_IS_OVER;

    for (unsigned i = 0; r == TIME_IS_OVER && !resolver->exhausted && i < 500; i++)
        r = resolver->files(resolver, files, MOST, ret_count);
    return r;
}

static bool is_listed(struct fixture *fixture, int fd)
{
    struct vmm_file files[MOST];
    size_t count;
    struct stat st;

    assert_int_equal(list(&fixture->process.resolver, files, &count), 0);
    assert_int_equal(fstat(fd, &st), 0);
    for (size_t i = 0; i < count; i++)
        if (files[i].fd == fd) {
            assert_int_equal(files[i].identity.inode, st.st_ino);
            assert_int_equal(files[i].identity.device, st.st_dev);
            return true;
        }
    return false;
}

/* Nothing found, and nothing known either. */
static void a_lack_of_descriptors_is_noted(void **state)
{
    struct vmm_resolver *resolver = &((struct fixture *)*state)->process.resolver;
    struct vmm_identity identity;
    struct rlimit limit, none;

    assert_int_equal(resolver->path(resolver, "/nonexistent", &identity), -ENOENT);
    assert_int_equal(resolver->shortage, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(resolver->path(resolver, "/dev/null", &identity), -EMFILE);
    assert_int_equal(resolver->shortage, -EMFILE);
    resolver->shortage = 0;
    assert_int_equal(resolver->held(resolver, &identity, 1), 0);
    assert_int_equal(resolver->shortage, -EMFILE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A VMM chooses how many files it has and how long its paths are, and others wait meanwhile. */
static void one_time_bounds_all_that_is_examined(void **state)
{
    struct vmm_resolver *resolver = &((struct fixture *)*state)->process.resolver;
    const struct vmm_identity none = {.block_device = true};
    struct vmm_identity identity;
    struct vmm_file files[MOST];
    struct error error;
    size_t count;

    assert_true(resolver->until_ns > clock_processor());
    assert_true(resolver->until_ns < clock_processor() + 50 * NSEC_PER_MSEC);
    assert_int_equal(resolver->path(resolver, "/dev/null", &identity), 0);
    assert_int_equal(vmm_resolver_doubt(resolver, false, &error), 0);
    assert_false(vmm_may_hold(resolver, &none));
    resolver->until_ns = 1;
    assert_int_equal(resolver->path(resolver, "/dev/null", &identity), -ETIME);
    resolver->exhausted = false;
    assert_int_equal(resolver->descriptor(resolver, 0, &identity), -ETIME);
    resolver->exhausted = false;
    assert_int_equal(resolver->held(resolver, &identity, 1), 0);
    resolver->exhausted = false;
    assert_int_equal(resolver->files(resolver, files, MOST, &count), -ETIME);
    assert_true(vmm_may_hold(resolver, &none));
    assert_true(vmm_resolver_doubt(resolver, true, &error) < 0);
    assert_non_null(strstr(error.text, "than crustd examines"));
}

/* Descriptors that are no files count towards the bound as well. */
static void descriptors_are_counted(void **state)
{
    struct vmm_resolver *resolver = &((struct fixture *)*state)->process.resolver;
    static int open_ones[VMM_DESCRIPTORS + 1];
    struct vmm_identity held[MOST];
    struct rlimit limit, more;
    struct error error;
    int pipe_of[2];

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    more = (struct rlimit){VMM_DESCRIPTORS + 256, VMM_DESCRIPTORS + 256};
    if (limit.rlim_max > more.rlim_max)
        more.rlim_max = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &more) < 0)
        skip();
    resolver->until_ns = 0; /* their number is the bound, however fast they are examined */
    assert_int_equal(pipe(pipe_of), 0);
    (void)resolver->held(resolver, held, MOST);
    assert_int_equal(vmm_resolver_doubt(resolver, true, &error), 0);
    for (size_t i = 0; i < array_length(open_ones); i++)
        open_ones[i] = dup(pipe_of[0]);
    (void)resolver->held(resolver, held, MOST);
    for (size_t i = 0; i < array_length(open_ones); i++)
        fd_close(open_ones[i]);
    fd_close(pipe_of[0]);
    fd_close(pipe_of[1]);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    assert_true(vmm_resolver_doubt(resolver, true, &error) < 0);
    assert_non_null(strstr(error.text, "than crustd examines"));
}

static void a_file_counts_by_how_it_is_open(void **state)
{
    struct fixture *fixture = *state;
    cleanup(fd_closep) int both = open(fixture->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cleanup(fd_closep) int reader = open(fixture->path, O_RDONLY | O_CLOEXEC);
    cleanup(fd_closep) int log = open(fixture->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    cleanup(fd_closep) int directory = open(fixture->directory, O_RDONLY | O_CLOEXEC);
    cleanup(fd_closep) int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    assert_true(is_listed(fixture, both));
    assert_true(is_listed(fixture, reader));
    assert_false(is_listed(fixture, log));
    assert_false(is_listed(fixture, directory));
    assert_false(is_listed(fixture, null));
    assert_int_equal(unlink(fixture->path), 0);
    assert_true(is_listed(fixture, both));
}

static void memory_is_not_a_drive(void **state)
{
    struct fixture *fixture = *state;
    cleanup(fd_closep) int memory = memfd_create("memory", MFD_CLOEXEC);
    void *mapped;

    assert_int_equal(ftruncate(memory, 4096), 0);
    assert_true(is_listed(fixture, memory));
    mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, memory, 0);
    assert_true(mapped != MAP_FAILED);
    assert_true(is_listed(fixture, memory)); /* only what is shared with the guest */
    assert_int_equal(munmap(mapped, 4096), 0);
    mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    assert_true(mapped != MAP_FAILED);
    assert_false(is_listed(fixture, memory));
    assert_int_equal(munmap(mapped, 4096), 0);
}

/* A VMM may have 65,530. The kernel lists them by address, so the memory comes behind the others.
 */
static void only_so_many_mappings_are_read(void **state)
{
    enum { LINE = 48, LINES = 1024 * 1024 / LINE + 1000 };
    struct fixture *fixture = *state;
    cleanup(fd_closep) int memory = memfd_create("memory", MFD_CLOEXEC);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *region = mmap(NULL, (LINES + 1) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(region != MAP_FAILED);
    fixture->process.resolver.until_ns = 0; /* the time is another bound */
    assert_int_equal(ftruncate(memory, (off_t)page), 0);
    assert_true(mmap(region + LINES * page, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     memory, 0) != MAP_FAILED);
    assert_false(is_listed(fixture, memory));
    for (size_t i = 0; i < LINES; i += 2)
        assert_int_equal(mprotect(region + i * page, page, PROT_READ), 0);
    assert_true(is_listed(fixture, memory));
    assert_int_equal(munmap(region, (LINES + 1) * page), 0);
}

/* A process with its own mappings, whose reading is not waited for. */
static void a_vmm_that_keeps_its_memory_locked_is_not_waited_for(void **state)
{
    struct fixture *fixture = *state;
    struct vmm_resolver *resolver = &fixture->process.resolver;
    cleanup(fd_closep) int file = open(fixture->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct vmm_file files[MOST];
    size_t count;
    pid_t reader;

    assert_true(file >= 0);
    resolver->until_ns = 0; /* the time is another bound */
    assert_int_equal(process_reader_start(), 0);
    assert_true(is_listed(fixture, file));
    reader = find_child("crustd-reader\n");
    assert_true(reader > 0);
    assert_int_equal(kill(reader, SIGSTOP), 0); /* as if it waited for the lock */
    assert_int_equal(resolver->files(resolver, files, MOST, &count), -ETIME);
    assert_true(is_listed(fixture, file));
}

static void more_than_there_is_room_for_is_an_error(void **state)
{
    struct fixture *fixture = *state;
    struct vmm_resolver *resolver = &fixture->process.resolver;
    cleanup(fd_closep) int file = open(fixture->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct vmm_file files[1];
    size_t count;

    assert_true(file >= 0);
    assert_int_equal(resolver->files(resolver, files, 0, &count), -EMSGSIZE);
}

static void sizes_are_the_kernels(void **state)
{
    struct fixture *fixture = *state;
    struct vmm_resolver *resolver = &fixture->process.resolver;
    struct vmm_identity none = {.block_device = true, .device = 0}, file = {.device = 1};
    uint64_t bytes;

    assert_int_equal(resolver->bytes(resolver, &none, &bytes), -ENOENT);
    assert_int_equal(resolver->bytes(resolver, &file, &bytes), -ENOTBLK);
}

#define files_test(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        files_test(a_lack_of_descriptors_is_noted),
        files_test(a_file_counts_by_how_it_is_open),
        files_test(one_time_bounds_all_that_is_examined),
        files_test(descriptors_are_counted),
        files_test(memory_is_not_a_drive),
        files_test(only_so_many_mappings_are_read),
        files_test(a_vmm_that_keeps_its_memory_locked_is_not_waited_for),
        files_test(more_than_there_is_room_for_is_an_error),
        files_test(sizes_are_the_kernels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
