/* SPDX-License-Identifier: Apache-2.0 */
/* power_loss_test.c - what a power cut leaves of the database: after any write and any flush, with
 * what was not flushed lost, torn, mixed, reordered or garbled. Nothing that was promised is lost,
 * and what is there is what once was, whole.
 *
 * CRUST_IMAGES says how many images are made (make power-loss IMAGES=N); few by default.
 */
#include "tests/power-loss/disk.h"
#include "tests/power-loss/workload.h"
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

#include <dirent.h>
#include <inttypes.h>

enum { FEW_IMAGES = 300, FEW_VOLUMES = 20, MANY_VOLUMES = 64 };

struct tally {
    size_t images, lost, refused, set_aside;
};

static size_t wanted_images(void)
{
    const char *text = getenv("CRUST_IMAGES");

    return text && *text ? strtoul(text, NULL, 10) : FEW_IMAGES;
}

/* ---- one image ------------------------------------------------------------------------------- */

struct image {
    const char *directory;
    char path[96];
    size_t operations;
    enum disk_loss loss;
    uint64_t seed;
    struct tally *tally;
    char text[256]; /* what is wrong with it */
};

static void clear(const char *directory)
{
    DIR *names = opendir(directory);

    assert_non_null(names);
    for (struct dirent *name; (name = readdir(names));)
        if (name->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(names), name->d_name, 0), 0);
    (void)closedir(names);
}

static void complain(const struct image *image, size_t *count)
{
    print_error("after %zu operations, %s, seed %" PRIu64 ": %s\n", image->operations,
                disk_loss_name(image->loss), image->seed, image->text);
    ++*count;
}

/* SQLite's own whole check, and that each row has what it refers to. */
static bool is_sound(struct sql_connection *connection, char text[static 256])
{
    static const char check[] = "PRAGMA integrity_check(1)", keys[] = "PRAGMA foreign_key_check";
    cleanup(sql_end) struct sql_rows rows = {0}, broken = {0};
    int r = sql_first_values(connection, check, &rows, NULL, 0);

    (void)snprintf(text, 256, "%s", r == SQL_ROW ? sql_borrow_text(&rows) : connection->error_text);
    if (strcmp(text, "ok") != 0)
        return false;
    r = sql_first_values(connection, keys, &broken, NULL, 0);
    (void)snprintf(text, 256, "foreign_key_check: %d", r);
    return r == SQL_END;
}

/* Read as it was left: without a checkpoint at the end. */
static bool read_image(struct image *image, struct workload_content *ret_content)
{
    struct sql_connection connection = {0};
    bool sound = sql_open(&connection, image->path, SQLITE_OPEN_READWRITE) == 0;

    if (sound) {
        (void)sqlite3_db_config(connection.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        sound = is_sound(&connection, image->text) &&
                workload_read_content(&connection, 0, ret_content) == 0;
    }
    if (!sound && !image->text[0])
        (void)snprintf(image->text, sizeof(image->text), "%s", connection.error_text);
    sql_close(&connection);
    return sound;
}

static struct store *open_image(struct image *image, bool *ret_rebuilt)
{
    struct store_opening opening = {0};
    struct store_options options = {.path = image->path,
                                    .boot_id = "the boot after",
                                    .keep_days = 90,
                                    .max_rows = 100000,
                                    .ret_opening = &opening};
    struct store *store = NULL;
    struct error error = {0};

    if (store_open(&options, &store, &error) != STORE_OPENED) {
        (void)snprintf(image->text, sizeof(image->text), "store_open: %.200s", error.text);
        return NULL;
    }
    *ret_rebuilt = opening.rebuilt;
    return store;
}

/* The daemon goes on with it. */
static bool goes_on(struct image *image, struct store *store)
{
    struct store_entry entry = entry_of("key-after", "/after", 999999);
    int64_t volume_id;
    bool changed;

    if (store_begin(store) == 0 &&
        row_put_entry(store, &entry, &volume_id, &changed) == STORE_PUT &&
        store_commit_durable(store) == 0)
        return is_sound(&store->connection, image->text);
    (void)snprintf(image->text, sizeof(image->text), "cannot write: %.200s",
                   store_error_text(store));
    return false;
}

/* Opened by crustd: nothing that lasts has changed. */
static bool continues(struct image *image, const struct workload_content *expected)
{
    struct workload_content content = {0};
    bool rebuilt = false, good;
    struct store *store = open_image(image, &rebuilt);

    if (!store)
        return false;
    good = goes_on(image, store) && !rebuilt;
    if (rebuilt)
        (void)snprintf(image->text, sizeof(image->text), "was set aside");
    if (good && expected) {
        /* Without the volume that was just added. */
        execute_sql(store, "BEGIN; PRAGMA defer_foreign_keys = ON;"
                           "DELETE FROM entry_sandboxes WHERE entry_id IN"
                           " (SELECT entry_id FROM entries WHERE key = 'key-after');"
                           "DELETE FROM entries WHERE key = 'key-after';"
                           "DELETE FROM volumes WHERE target_path = '/after'");
        good = workload_read_content(&store->connection, expected->lines, &content) == 0 &&
               content.history == expected->history;
        if (!good)
            (void)snprintf(image->text, sizeof(image->text), "the start changed its history");
        execute_sql(store, "ROLLBACK");
    }
    store_close(store);
    return good;
}

/* Which commit it is; -1: from before the first one; -2: it never was so. */
static long find_commit(const struct workload *workload, const struct workload_content *content,
                        long most)
{
    if (content->all == 0)
        return -1;
    for (long i = most; i >= 0; i--)
        if (workload->commit[i].content.all == content->all)
            return i;
    return -2;
}

static void check_image(struct image *image, const struct workload *workload)
{
    struct workload_content content = {0};
    long least, most, found = -1;

    workload_bounds(workload, image->operations, image->loss == DISK_KEEPS_ALL, &least, &most);
    if (access(image->path, F_OK) == 0) {
        if (!read_image(image, &content)) {
            complain(image, &image->tally->refused);
            return;
        }
        found = find_commit(workload, &content, most);
    }
    if (found < least) {
        (void)snprintf(image->text, sizeof(image->text),
                       "has commit %ld, and %ld was promised (-2: a mixture)", found, least);
        complain(image, &image->tally->lost);
    } else if (!continues(image, found >= 0 ? &workload->commit[found].content : NULL)) {
        complain(image, &image->tally->refused);
    }
}

/* A disk that says that it flushed and did not: all may be lost, but crustd starts, and what is
 * damaged it sets aside. An index that lacks a row escapes its quick check; then writing works, or
 * says that there is damage, which ends with another start. */
static void check_lie(struct image *image, const struct workload *workload)
{
    struct store_entry entry = entry_of("key-after", "/after", 999999);
    bool rebuilt = false, changed;
    struct store *store = open_image(image, &rebuilt);
    int64_t volume_id;
    int r;

    if (!store) {
        complain(image, &image->tally->refused);
        return;
    }
    r = store_begin(store);
    if (r == 0)
        r = row_put_entry(store, &entry, &volume_id, &changed);
    if (r == STORE_PUT)
        r = store_commit_durable(store);
    (void)snprintf(image->text, sizeof(image->text), "%d %.200s", r, store_error_text(store));
    if (r != 0 && (r != STORE_DAMAGED || rebuilt))
        complain(image, &image->tally->refused);
    image->tally->set_aside += rebuilt;
    store_close(store);
}

/* ---- all of them ----------------------------------------------------------------------------- */

typedef void check_function(struct image *image, const struct workload *workload);

static struct tally check_images(const struct workload *workload, size_t images,
                                 const char *directory, bool lies)
{
    check_function *const check = lies ? check_lie : check_image;
    struct tally tally = {0};

    for (size_t i = 0; i < images; i++) {
        struct image image = {
            .directory = directory,
            .operations = i * (disk_operations() + 1) / images,
            .loss = lies ? DISK_LIES : (enum disk_loss)(i % DISK_LOSSES),
            .seed = i,
            .tally = &tally,
        };

        (void)snprintf(image.path, sizeof(image.path), "%s/crustd.db", directory);
        assert_int_equal(disk_image(image.operations, image.loss, image.seed, directory), 0);
        check(&image, workload);
        clear(directory);
        tally.images++;
    }
    return tally;
}

static void record(struct fixture *fixture, size_t images, struct workload *ret_workload)
{
    assert_int_equal(disk_record(fixture->directory), 0);
    workload_run(fixture->path, images > FEW_IMAGES ? MANY_VOLUMES : FEW_VOLUMES, ret_workload);
    disk_stop();
    clear(fixture->directory);
}

static void nothing_promised_is_lost(void **state)
{
    struct fixture *fixture = *state;
    struct workload workload;
    struct tally tally;

    record(fixture, wanted_images(), &workload);
    tally = check_images(&workload, wanted_images(), fixture->directory, false);
    print_message(
        "%zu images of %zu operations, %zu commits, %zu promises: %zu with promised records"
        " lost, %zu not opened or not sound\n",
        tally.images, disk_operations(), workload.commits, workload.promises, tally.lost,
        tally.refused);
    assert_true(workload.promises > FEW_VOLUMES);
    workload_done(&workload);
    disk_forget();
    assert_int_equal(tally.lost, 0);
    assert_int_equal(tally.refused, 0);
}

static void disk_that_lies_keeps_nobody_from_starting(void **state)
{
    struct fixture *fixture = *state;
    struct workload workload;
    struct tally tally;

    record(fixture, 0, &workload);
    tally = check_images(&workload, wanted_images() / 10, fixture->directory, true);
    print_message("%zu images of a disk that ignores flushes: %zu set aside, %zu not to be used\n",
                  tally.images, tally.set_aside, tally.refused);
    workload_done(&workload);
    disk_forget();
    assert_true(tally.set_aside > 0);
    assert_int_equal(tally.refused, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES(nothing_promised_is_lost),
        FILES(disk_that_lies_keeps_nobody_from_starting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
