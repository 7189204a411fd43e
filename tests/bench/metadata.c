/* SPDX-License-Identifier: Apache-2.0 */
/* metadata.c - how long from a closed mountInfo.json to its row committed:
 * metadata COUNT PAUSE_US DEVICE ROOT DATABASE [ROOT DATABASE]...
 *
 * Below each ROOT in turn a volume's directory is made and written as Kata does it (mkdir, create,
 * write, close, with no gap); the clock starts before close(2). Whoever watches that ROOT commits
 * to that DATABASE. Prints nanoseconds, one line per volume, one column per ROOT.
 *
 * How a commit is seen. A commit becomes one for all readers at the moment when SQLite rewrites the
 * first header of the shared WAL index (walIndexWriteHdr; sqlite.org/walformat.html, "The
 * WAL-Index Header"). So that is what is looked at, through a mapping of the -shm file: no lock, no
 * system call, nothing that the writer could notice. Then a SELECT tells whether the row was in it.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/encode.h"
#include "tests/bench/bench.h"

enum { TARGETS = 2, HEADER_WORDS = 6, SHM_BYTES = 4096, KEY_BYTES = BASE64URL_NAME_CHARS + 1 };

static const uint64_t give_up_ns = UINT64_C(60000000000);

struct target {
    int root;
    const volatile uint64_t *header;
    uint64_t seen[HEADER_WORDS];
    sqlite3 *db;
    sqlite3_stmt *find;
};

static void open_target(struct target *target, const char *root, const char *database)
{
    static const char find[] =
        "SELECT 1 FROM entries WHERE key = ?1 AND gone = 0 AND device IS NOT NULL";
    char shm[PATH_MAX];
    int fd;

    target->root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (target->root < 0)
        fail(root);
    if (sqlite3_open_v2(database, &target->db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(target->db, find, -1, &target->find, NULL) != SQLITE_OK)
        fail(sqlite3_errmsg(target->db));
    (void)snprintf(shm, sizeof(shm), "%s-shm", database);
    fd = open(shm, O_RDONLY | O_CLOEXEC);
    target->header = fd < 0 ? MAP_FAILED : mmap(NULL, SHM_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (target->header == MAP_FAILED)
        fail(shm);
    (void)close(fd);
}

/* Whether there was a commit since the last look. */
static bool has_changed(struct target *target)
{
    bool changed = false;

    for (unsigned i = 0; i < HEADER_WORDS; i++) {
        uint64_t word = target->header[i];

        changed = changed || word != target->seen[i];
        target->seen[i] = word;
    }
    return changed;
}

static bool is_recorded(struct target *target, const char *key)
{
    bool found;

    (void)sqlite3_bind_text(target->find, 1, key, -1, SQLITE_STATIC);
    found = sqlite3_step(target->find) == SQLITE_ROW;
    (void)sqlite3_reset(target->find);
    return found;
}

static uint64_t write_volume(const struct target *target, const char *key, const char *text)
{
    char file[PATH_MAX];
    uint64_t start_ns;
    int fd;

    (void)snprintf(file, sizeof(file), "%s/mountInfo.json", key);
    if (mkdirat(target->root, key, 0700) < 0)
        fail(key);
    fd = openat(target->root, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        fail(file);
    start_ns = now_ns();
    (void)close(fd);
    return start_ns;
}

static void remove_volume(const struct target *target, const char *key)
{
    char file[PATH_MAX];

    (void)snprintf(file, sizeof(file), "%s/mountInfo.json", key);
    if (unlinkat(target->root, file, 0) < 0 || unlinkat(target->root, key, AT_REMOVEDIR) < 0)
        fail(key);
}

/* A commit that comes between the look and the SELECT could be the one that was waited for: then
 * the time is that of the SELECT, which is later. */
static uint64_t measure(struct target *target, const char *key, const char *text)
{
    uint64_t start_ns, at_ns;

    (void)has_changed(target);
    start_ns = write_volume(target, key, text);
    for (;;) {
        while (!has_changed(target))
            if (now_ns() - start_ns > give_up_ns)
                fail(key);
        at_ns = now_ns();
        if (is_recorded(target, key))
            break;
    }
    if (has_changed(target))
        at_ns = now_ns();
    return at_ns > start_ns ? at_ns - start_ns : 0;
}

static void make_key(unsigned number, char ret_key[static KEY_BYTES])
{
    char path[BASE64URL_PATH_BYTES];
    int length = snprintf(path, sizeof(path),
                          "/var/lib/kubelet/pods/%08x-8a3c-4c86-9e1b-2f64c1f6a0b9/volumes/"
                          "kubernetes.io~csi/pvc-%08x-5a3c-4c86-9e1b-2f64c1f6a0b9/mount",
                          number, number);

    base64url_encode(path, (size_t)length, ret_key);
}

int main(int argc, char **argv)
{
    static struct target targets[TARGETS];
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 0, used = (unsigned)(argc - 4) / 2;
    uint64_t pause_ns = argc > 2 ? strtoull(argv[2], NULL, 10) * 1000 : 0;
    char text[512];

    if (argc < 6 || used > TARGETS)
        return 2;
    for (unsigned i = 0; i < used; i++)
        open_target(&targets[i], argv[4 + 2 * i], argv[5 + 2 * i]);
    (void)snprintf(text, sizeof(text),
                   "{\"volume-type\":\"block\",\"device\":\"%s\",\"fstype\":\"ext4\","
                   "\"metadata\":{\"fsGroup\":\"1000\"},\"options\":[\"rw\"]}",
                   argv[3]);
    for (unsigned number = 0; number < count; number++)
        for (unsigned i = 0; i < used; i++) {
            char key[KEY_BYTES];

            make_key(number, key);
            (void)printf("%" PRIu64 "%c", measure(&targets[i], key, text),
                         i + 1 < used ? ' ' : '\n');
            sleep_ns(random_around(pause_ns));
            remove_volume(&targets[i], key);
            sleep_ns(random_around(pause_ns));
        }
    return 0;
}
