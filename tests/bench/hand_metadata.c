/* SPDX-License-Identifier: Apache-2.0 */
/* hand_metadata.c - metadata recorded by hand, without a daemon: hand_metadata ROOT DATABASE.
 *
 * Watches ROOT, then each directory that appears in it, reads mountInfo.json when it is closed and
 * commits it as one row, in the same journal mode as crustd. Nothing is checked or parsed; ends
 * when killed.
 */
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { WATCHES = 8192, EVENT_BYTES = 4096 };

static const char *root;
static char names[WATCHES][NAME_MAX + 1]; /* by watch descriptor */
static int notify;
static sqlite3_stmt *begin, *insert, *commit;

static void check(sqlite3 *db, int code)
{
    if (code != SQLITE_OK && code != SQLITE_DONE)
        fail(sqlite3_errmsg(db));
}

static void open_database(const char *path)
{
    sqlite3 *db;

    check(NULL, sqlite3_open(path, &db));
    check(db, sqlite3_exec(db,
                           "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                           "PRAGMA wal_autocheckpoint = 0;"
                           "CREATE TABLE entries (key TEXT PRIMARY KEY, device TEXT, gone INTEGER)",
                           NULL, NULL, NULL));
    check(db, sqlite3_prepare_v2(db, "BEGIN IMMEDIATE", -1, &begin, NULL));
    check(db, sqlite3_prepare_v2(db, "INSERT OR REPLACE INTO entries VALUES (?1, ?2, 0)", -1,
                                 &insert, NULL));
    check(db, sqlite3_prepare_v2(db, "COMMIT", -1, &commit, NULL));
}

static void run(sqlite3_stmt *statement)
{
    check(sqlite3_db_handle(statement), sqlite3_step(statement));
    (void)sqlite3_reset(statement);
}

static void record(const char *name)
{
    char path[PATH_MAX], text[4096];
    ssize_t length;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s/mountInfo.json", root, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    length = fd < 0 ? 0 : read(fd, text, sizeof(text));
    if (fd >= 0)
        (void)close(fd);
    if (length <= 0)
        return;
    (void)sqlite3_bind_text(insert, 1, name, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(insert, 2, text, (int)length, SQLITE_STATIC);
    run(begin);
    run(insert);
    run(commit);
}

static void on_event(const struct inotify_event *event, int root_watch)
{
    char path[PATH_MAX];
    int watch;

    if (event->wd != root_watch) {
        if (event->wd > 0 && event->wd < WATCHES && (event->mask & IN_CLOSE_WRITE))
            record(names[event->wd]);
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/%s", root, event->name);
    watch = inotify_add_watch(notify, path, IN_CLOSE_WRITE);
    if (watch < 0 || watch >= WATCHES)
        return;
    (void)snprintf(names[watch], sizeof(names[watch]), "%s", event->name);
    record(event->name); /* it may have been closed before the watch was there */
}

int main(int argc, char **argv)
{
    _Alignas(struct inotify_event) char events[EVENT_BYTES];
    int root_watch;

    if (argc != 3)
        return 2;
    root = argv[1];
    open_database(argv[2]);
    notify = inotify_init1(IN_CLOEXEC);
    root_watch = inotify_add_watch(notify, root, IN_CREATE);
    if (root_watch < 0)
        fail(root);
    (void)printf("ready\n");
    (void)fflush(stdout);
    for (;;) {
        ssize_t length = read(notify, events, sizeof(events));

        if (length <= 0)
            fail("inotify");
        for (ssize_t at = 0; at < length;) {
            const struct inotify_event *event = (const void *)(events + at);

            at += (ssize_t)(sizeof(*event) + event->len);
            on_event(event, root_watch);
        }
    }
}
