/* SPDX-License-Identifier: Apache-2.0 */
/* mount_table_test.c - mountinfo as the kernel writes it, and lines that it would never write. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/mount_table.h"

static void lines_are_taken_apart(void **state)
{
    char text[] = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=continue\n"
                  "40 22 8:16 /sub\\040dir /mnt/a\\040b\\134c\\012d ro,noatime - xfs /dev/sdb rw\n"
                  "41 22 0:31 / /mnt/butter rw master:2 propagate_from:1 unbindable - btrfs "
                  "/dev/disk/with\\040blank ro,space_cache\n"
                  "42 22 8:32 / /mnt/hurt rw - ext4 /dev/sdc rw,emergency_ro\n"
                  "44 22 8:48 / /mnt/asked ro - ext4 /dev/sdd ro\n"
                  "45 22 8:64 / /mnt/ended rw - ext4 /dev/sde rw,shutdown\n"
                  "43 22 0:44 / /mnt/unnamed rw - tmpfs  ro\n";
    char *cursor = text;
    struct mount_entry mount;

    assert_true(mount_table_next(&cursor, &mount));
    assert_int_equal(mount.id, 22);
    assert_int_equal(mount.device, makedev(254, 0));
    assert_string_equal(mount.mount_point, "/");
    assert_string_equal(mount.file_system, "ext4");
    assert_string_equal(mount.source, "/dev/vda");
    assert_false(mount.read_only);
    assert_true(mount_table_next(&cursor, &mount));
    assert_int_equal(mount.device, makedev(8, 16));
    assert_string_equal(mount.root, "/sub dir");
    assert_string_equal(mount.mount_point, "/mnt/a b\\c\nd");
    assert_true(mount.read_only && !mount.file_system_read_only);
    assert_true(mount_table_next(&cursor, &mount));
    assert_int_equal(mount.device, makedev(0, 31));
    assert_string_equal(mount.source, "/dev/disk/with blank");
    assert_true(mount.read_only);
    assert_true(mount_table_next(&cursor, &mount));
    assert_true(mount.read_only && mount.file_system_read_only && mount.shut_down);
    assert_true(mount_table_next(&cursor, &mount));
    assert_true(mount.read_only && mount.file_system_read_only && !mount.shut_down);
    assert_true(mount_table_next(&cursor, &mount));
    assert_true(mount.read_only && mount.shut_down);
    assert_true(mount_table_next(&cursor, &mount));
    assert_string_equal(mount.source, "");
    assert_true(mount.read_only);
    assert_false(mount_table_next(&cursor, &mount));
    assert_false(mount_table_next(&cursor, &mount));
}

/* Whoever may mount FUSE may name any device as its source. */
static void a_source_is_not_everybodys_to_name(void **state)
{
    static const struct {
        const char *rest;
        bool is_device;
    } cases[] = {
        {"btrfs /dev/loop0 rw,space_cache", true},
        {"bcachefs /dev/loop0 rw", true},
        {"fuse /dev/loop0 rw,user_id=0,group_id=0", true},
        {"fuse.sshfs /dev/loop0 rw,user_id=0,group_id=0", true},
        {"fuseblk /dev/loop0 rw,user_id=0,group_id=0", true},
        {"fuse /dev/loop0 rw,user_id=1000,group_id=0", false},
        {"fuse.sshfs /dev/loop0 rw,user_id=1000,group_id=1000", false},
        {"fuse /dev/loop0 rw,group_id=0", false},
        {"fuse /dev/loop0 rw,xuser_id=0", false},
        {"fusectl /dev/loop0 rw,user_id=0", false},
        {"tmpfs /dev/loop0 rw", false},
        {"nfs4 /dev/loop0 rw", false},
        {"btrfsx /dev/loop0 rw", false},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct mount_entry mount;
        char line[256];

        (void)snprintf(line, sizeof(line), "40 22 0:50 / /mnt rw - %s\n", cases[i].rest);
        assert_true(mount_table_parse(line, &mount));
        assert_string_equal(mount.source, "/dev/loop0");
        assert_int_equal(mount_table_source_is_device(&mount), cases[i].is_device);
    }
}

static void nonsense_is_skipped(void **state)
{
    char text[] = "\n"
                  "garbage\n"
                  "1 2 3:4 / /a rw\n"
                  "1 2 3:4 / /b rw -\n"
                  "1 2 3:4 / /c rw - ext4\n"
                  "1 2 x / /d rw - ext4 /dev/vda rw\n"
                  "1 2 3:4 / /\\04 rw - ext4 none error,error=ro,row,wro";
    char *cursor = text;
    struct mount_entry mount;

    assert_true(mount_table_next(&cursor, &mount));
    assert_string_equal(mount.mount_point, "/\\04");
    assert_false(mount.read_only);
    assert_false(mount_table_next(&cursor, &mount));
    cursor = NULL;
    assert_false(mount_table_next(&cursor, &mount));
}

static void the_real_file_is_read(void **state)
{
    struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    struct mount_entry mount;
    bool found = false;
    char *cursor;

    assert_int_equal(mount_table_read(&text), 0);
    cursor = text.data;
    while (mount_table_next(&cursor, &mount))
        found |= strcmp(mount.mount_point, "/proc") == 0;
    assert_true(found);
    buffer_done(&text);
}

struct seen {
    unsigned count, hung;
    size_t point;
    int result;
};

static int see_line(void *userdata, char *line)
{
    struct seen *seen = userdata;
    struct mount_entry mount;

    seen->count++;
    if (mount_table_split(line, &mount) && strcmp(mount.file_system, "fuse") == 0) {
        seen->hung++;
        seen->point = strlen(mount.mount_point);
        assert_string_equal(mount.source, "source");
    }
    return seen->result;
}

static int make_table(const char *text, size_t length)
{
    int fd = memfd_create("table", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, length), length);
    return fd;
}

/* Of a field, no more than a path that can be looked up is needed; what follows it is. */
static void lines_of_any_length_are_read(void **state)
{
    enum { LONG = 1 << 20 };
    cleanup(freep) char *text = malloc(2 * LONG + 256);
    struct seen seen = {0};
    size_t length;
    int fd;

    assert_non_null(text);
    length = (size_t)sprintf(text, "1 0 0:1 / /\\040 rw - tmpfs source rw\n2 1 0:2 /");
    memset(text + length, 'x', LONG);
    length += LONG;
    length += (size_t)sprintf(text + length, " /short rw shared:1 - fuse source rw\n\n3 1 0:3 / /");
    memset(text + length, 'x', LONG);
    length += LONG;
    length += (size_t)sprintf(text + length, " rw - fuse source rw");
    fd = make_table(text, length);
    seen.result = 0;
    assert_int_equal(mount_table_each_line(fd, length, see_line, &seen), 0);
    assert_int_equal(seen.count, 4);
    assert_int_equal(seen.hung, 2);
    assert_int_equal(seen.point, MOUNT_TABLE_FIELD_BYTES);
    seen = (struct seen){.result = -EIO};
    assert_int_equal(mount_table_each_line(fd, length, see_line, &seen), -EIO);
    assert_int_equal(seen.count, 1);
    seen = (struct seen){0};
    assert_int_equal(mount_table_each_line(fd, length - 1, see_line, &seen), BUFFER_FULL);
    fd_close(fd);
}

/* Neither a table nor its line fits: what is no table, and more fields than the kernel writes. */
static void what_is_no_table_is_reported(void **state)
{
    enum { FIELDS = 8 };
    cleanup(freep) char *text = malloc((FIELDS + 1) * (MOUNT_TABLE_FIELD_BYTES + 2));
    struct seen seen = {0};
    int ends[2], fd;
    size_t length = 0;

    assert_non_null(text);
    for (unsigned i = 0; i < FIELDS; i++) {
        memset(text + length, 'x', MOUNT_TABLE_FIELD_BYTES);
        length += MOUNT_TABLE_FIELD_BYTES;
        text[length++] = ' ';
    }
    fd = make_table(text, length);
    assert_int_equal(mount_table_each_line(fd, length, see_line, &seen), 0);
    assert_int_equal(seen.hung, 0);
    fd_close(fd);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(mount_table_each_line(ends[0], 1, see_line, &seen), -ESPIPE);
    fd_close(ends[0]);
    fd_close(ends[1]);
    fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mount_table_each_line(fd, 1, see_line, &seen), -EISDIR);
    fd_close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_taken_apart),
        cmocka_unit_test(nonsense_is_skipped),
        cmocka_unit_test(a_source_is_not_everybodys_to_name),
        cmocka_unit_test(the_real_file_is_read),
        cmocka_unit_test(lines_of_any_length_are_read),
        cmocka_unit_test(what_is_no_table_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
