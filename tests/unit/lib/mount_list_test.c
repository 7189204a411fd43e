/* SPDX-License-Identifier: Apache-2.0 */
/* mount_list_test.c - the kernel's list of mounts has what its table has. */
#include "tests/unit/test.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/mount_table.h"

enum { POINTS = 4096 };

struct points {
    char *name[POINTS];
    size_t count;
};

static void add(struct points *points, const char *name)
{
    assert_true(points->count < POINTS);
    points->name[points->count] = strdup(name);
    assert_non_null(points->name[points->count++]);
}

static int add_listed(void *userdata, uint64_t id, const char *mount_point)
{
    char name[PATH_MAX + 32];

    (void)snprintf(name, sizeof(name), "%s %" PRIu64, mount_point, id);
    add(userdata, name);
    return 0;
}

static void done(struct points *points)
{
    for (size_t i = 0; i < points->count; i++)
        free(points->name[i]);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_wanted(const char *file_system)
{
    return strcmp(file_system, "proc") == 0 || strcmp(file_system, "tmpfs") == 0;
}

static enum mount_list_want want_names(const char *file_system)
{
    return is_wanted(file_system) ? MOUNT_LIST_NAME : MOUNT_LIST_NOTHING;
}

static enum mount_list_want want_ids(const char *file_system)
{
    return is_wanted(file_system) ? MOUNT_LIST_ID : MOUNT_LIST_NOTHING;
}

static int stop(void *userdata, uint64_t id, const char *mount_point)
{
    assert_null(mount_point);
    ++*(unsigned *)userdata;
    return -E2BIG;
}

static void the_list_is_that_of_the_table(void **state)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    struct points listed = {0}, read = {0};
    struct mount_entry mount;
    unsigned visits = 0;
    char *cursor;
    int r = mount_list_each(want_names, add_listed, &listed);

    if (r == MOUNT_LIST_UNKNOWN || r == MOUNT_LIST_FORBIDDEN)
        skip();
    assert_int_equal(r, 0);
    assert_int_equal(mount_table_read(&text), 0);
    cursor = text.data;
    while (mount_table_next(&cursor, &mount))
        if (is_wanted(mount.file_system))
            (void)add_listed(&read, mount.id, mount.mount_point);
    assert_true(read.count > 0);
    assert_int_equal(listed.count, read.count);
    qsort(listed.name, listed.count, sizeof(listed.name[0]), compare);
    qsort(read.name, read.count, sizeof(read.name[0]), compare);
    for (size_t i = 0; i < read.count; i++)
        assert_string_equal(listed.name[i], read.name[i]);
    done(&listed);
    done(&read);
    assert_int_equal(mount_list_each(want_ids, stop, &visits), -E2BIG);
    assert_int_equal(visits, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_is_that_of_the_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
