/* SPDX-License-Identifier: Apache-2.0 */
/* config_test.c - the table of keys against itself, and files against golden answers.
 *
 * data/NAME.conf is read; data/NAME.ok holds what must come of it: the lines of the effective
 * configuration that differ from the defaults, or the error. `make golden` writes the .ok files
 * anew. Runs in the root of the tree.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "config/keys.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "tests/unit/scratch.h"

#define DATA "tests/unit/config/data/"

static char *print(const struct config *config)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);

    assert_int_equal(config_print(config, stream), 0);
    (void)fclose(stream);
    return text;
}

static int read_bytes(const char *text, size_t length, struct config *config, struct error *error)
{
    FILE *stream = tmpfile();
    int r;

    assert_non_null(stream);
    assert_int_equal(fwrite(text, 1, length, stream), length);
    rewind(stream);
    config_defaults(config);
    r = config_read(stream, "x.conf", config, error);
    (void)fclose(stream);
    return r;
}

static int read_text(const char *text, struct config *config, struct error *error)
{
    return read_bytes(text, strlen(text), config, error);
}

static void expect_error(const char *text, const char *message)
{
    struct config config, before;
    struct error error;

    config_defaults(&config);
    config_defaults(&before);
    assert_int_equal(read_text(text, &config, &error), -EINVAL);
    assert_string_equal(error.text, message);
    assert_memory_equal(&config, &before, sizeof(config)); /* nothing of it is taken */
}

/* Every default is what a person could write, and prints as it stands in the table. */
static void defaults_are_valid(void **state)
{
    struct config defaults, read;
    char *text, *again;

    config_defaults(&defaults);
    assert_string_equal(defaults.paths.database, "/var/lib/crustd/crustd.db");
    assert_int_equal(defaults.resize.mode, RESIZE_GROW);
    assert_int_equal(defaults.resize.file_backed, FILE_BACKED_OBSERVE);
    assert_int_equal(defaults.agent.companion_port, 1030);
    assert_int_equal(defaults.agent.routes[2], ROUTE_SHIM);
    assert_int_equal(defaults.agent.routes[3], ROUTE_HELPER);
    assert_true(defaults.guest.helper);
    assert_int_equal(defaults.crust.runtime_cli_allow.count, 3);
    assert_int_equal(defaults.paths.bundles.count, 0);
    text = print(&defaults);
    for (size_t i = 0; i < config_key_count; i++) {
        char line[CONFIG_LINE_BYTES];

        (void)snprintf(line, sizeof(line), "\n%s = %s\n", config_keys[i].name,
                       config_keys[i].default_value);
        assert_non_null(strstr(text, line));
    }
    assert_int_equal(read_text(text, &read, NULL), 0);
    again = print(&read);
    assert_string_equal(text, again);
    free(text);
    free(again);
}

/* The shipped file names every key in the table's order, each with its default. */
static void shipped_file_agrees_with_the_table(void **state)
{
    cleanup(buffer_done) struct buffer enabled = BUFFER_INIT(64 * 1024);
    FILE *stream = fopen("config/crustd.conf.example", "re");
    struct config config, defaults;
    char line[CONFIG_LINE_BYTES], *text, *expected, *bare;
    struct error error = {.text = ""};

    assert_non_null(stream);
    assert_int_equal(config_load(-1, "/", "config/crustd.conf.example", &config, &error), 0);
    /* "#key = value" is a key, "# text" is a comment. */
    while (fgets(line, sizeof(line), stream))
        if (line[0] == '[' || (line[0] == '#' && line[1] >= 'a' && line[1] <= 'z'))
            assert_int_equal(buffer_append_text(&enabled, line + (line[0] == '#')), 0);
    (void)fclose(stream);
    assert_int_equal(read_text(buffer_text(&enabled), &config, &error), 0);

    config_defaults(&defaults);
    expected = print(&defaults);
    text = strdup(buffer_text(&enabled));
    /* Without blank lines and trailing spaces they are the same text. */
    bare = expected;
    for (char *from = expected; *from; from++)
        if (!(*from == '\n' && (from[1] == '\n')) && !(*from == ' ' && from[1] == '\n'))
            *bare++ = *from;
    *bare = '\0';
    assert_string_equal(text, expected);
    free(text);
    free(expected);
}

static void reports_place_and_reason(void **state)
{
    expect_error("[resize]\nmood = grow\n", "x.conf:2: resize.mood: unknown key");
    expect_error("[resiz]\nmode = grow\n", "x.conf:2: [resiz]: unknown section");
    expect_error("mode = grow\n", "x.conf:1: mode: stands before the first [section]");
    expect_error("[resize]\nmode\n",
                 "x.conf:2: neither a [section], nor key = value, nor a comment");
    expect_error("[resize\nmode = grow\n",
                 "x.conf:1: neither a [section], nor key = value, nor a comment");
    expect_error("[resize]\nmode = grow\n[http]\n[resize]\n\nmode = never\n",
                 "x.conf:6: resize.mode: was given in line 2 already");
    expect_error("[resize]\nmode = Grow\n",
                 "x.conf:2: resize.mode: must be one of never, observe, grow");
    expect_error("[resize]\nmode =\n",
                 "x.conf:2: resize.mode: must be one of never, observe, grow");
    expect_error("[resize]\nfile_backed = grow\n",
                 "x.conf:2: resize.file_backed: grow is refused: QEMU would truncate the file");
    expect_error("[resize]\nfirecracker = yes\n",
                 "x.conf:2: resize.firecracker: must be one of off, on");
    /* Only the first error is reported, of whichever kind. */
    expect_error("[resize]\nmode = x\nnonsense\n",
                 "x.conf:2: resize.mode: must be one of never, observe, grow");
    expect_error("[resize]\nnonsense\nmode = x\n",
                 "x.conf:2: neither a [section], nor key = value, nor a comment");
}

static void numbers_are_strict(void **state)
{
    static const char *const bad[] = {"0",
                                      "3601",
                                      "-1",
                                      "+1",
                                      "1 2",
                                      "1s",
                                      "0x10",
                                      "1.0",
                                      "",
                                      "4294967297",
                                      "18446744073709551617",
                                      "1e2",
                                      "30 # half a minute"};
    char text[128];
    struct config config;

    for (size_t i = 0; i < array_length(bad); i++) {
        (void)snprintf(text, sizeof(text), "[resize]\nsweep_seconds = %s\n", bad[i]);
        expect_error(text, "x.conf:2: resize.sweep_seconds: must be a whole number from 1 to 3600");
    }
    assert_int_equal(read_text("[resize]\nsweep_seconds = 3600 ; an hour\n", &config, NULL), 0);
    assert_int_equal(config.resize.sweep_seconds, 3600);
    assert_int_equal(read_text("[agent]\nport = 4294967294\n", &config, NULL), 0);
    assert_int_equal(config.agent.port, 4294967294);
    assert_int_equal(read_text("[agent]\nport = 4294967295\n", &config, NULL), -EINVAL);
}

static void paths_are_absolute_and_bounded(void **state)
{
    char text[CONFIG_LINE_BYTES], path[CONFIG_PATH_BYTES + 1];
    struct config config;

    expect_error("[paths]\nsysfs = sys\n", "x.conf:2: paths.sysfs: must be an absolute path");
    expect_error("[paths]\nsysfs =\n", "x.conf:2: paths.sysfs: must be an absolute path");
    expect_error("[paths]\nsysfs = /sys # here\n",
                 "x.conf:2: paths.sysfs: a comment after a value starts with ';', not with '#'");
    expect_error("[paths]\nsysfs = /a\x01\n",
                 "x.conf:2: paths.sysfs: a path with control characters or invalid UTF-8");
    expect_error("[paths]\nsysfs = /a\xFF\n",
                 "x.conf:2: paths.sysfs: a path with control characters or invalid UTF-8");
    memset(path, 'a', sizeof(path));
    path[0] = '/';
    path[CONFIG_PATH_BYTES] = '\0';
    (void)snprintf(text, sizeof(text), "[paths]\nsysfs = %s\n", path);
    expect_error(text, "x.conf:2: paths.sysfs: a path of 256 bytes, more than 255");
    path[CONFIG_PATH_BYTES - 1] = '\0';
    (void)snprintf(text, sizeof(text), "[paths]\nsysfs = %s\n", path);
    assert_int_equal(read_text(text, &config, NULL), 0);
    assert_string_equal(config.paths.sysfs, path);
}

static void lists_have_no_repeats_and_an_end(void **state)
{
    struct buffer text = BUFFER_INIT(1024);
    struct config config;

    expect_error("[paths]\nkubelet =\n", "x.conf:2: paths.kubelet: needs at least 1 path");
    expect_error("[paths]\nkubelet = /a, /b , /a\n", "x.conf:2: paths.kubelet: /a is listed twice");
    expect_error("[paths]\nkubelet = /a,,/b\n",
                 "x.conf:2: paths.kubelet: must be an absolute path");
    assert_int_equal(buffer_append_text(&text, "[paths]\nbundles = /0"), 0);
    for (int i = 1; i < CONFIG_LIST_ITEMS; i++)
        assert_int_equal(buffer_append_format(&text, ",/%d", i), 0);
    assert_int_equal(read_text(buffer_text(&text), &config, NULL), 0);
    assert_int_equal(config.paths.bundles.count, CONFIG_LIST_ITEMS);
    assert_string_equal(config_list_item(&config.paths.bundles, 15), "/15");
    assert_int_equal(buffer_append_text(&text, ", /16"), 0);
    expect_error(buffer_text(&text), "x.conf:2: paths.bundles: more than 16 paths");
    buffer_done(&text);

    expect_error("[agent]\nroutes = agent, companion, agent\n",
                 "x.conf:2: agent.routes: agent is listed twice");
    expect_error("[agent]\nroutes = agent, companion, shim, agent\n",
                 "x.conf:2: agent.routes: agent is listed twice");
    expect_error("[agent]\nroutes = none\n",
                 "x.conf:2: agent.routes: must be one of companion, agent, shim, helper");
    expect_error("[agent]\nroutes =\n",
                 "x.conf:2: agent.routes: must be one of companion, agent, shim, helper");
    assert_int_equal(read_text("[agent]\nroutes = shim\n", &config, NULL), 0);
    assert_int_equal(config.agent.routes[0], ROUTE_SHIM);
    assert_int_equal(config.agent.routes[1], ROUTE_NONE);
}

static void a_list_has_room_for_a_whole_line(void **state)
{
    struct config_list list = {0};
    char line[CONFIG_LINE_BYTES];

    memset(line, 'a', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    assert_true(config_list_add(&list, line));
    assert_string_equal(config_list_item(&list, 0), line);
    assert_false(config_list_add(&list, ""));

    list = (struct config_list){0};
    for (unsigned i = 0; i < CONFIG_LIST_ITEMS; i++)
        assert_true(config_list_add(&list, i % 2 ? "odd" : "even"));
    assert_false(config_list_add(&list, "odd"));
    assert_string_equal(config_list_item(&list, CONFIG_LIST_ITEMS - 1), "odd");
}

static void listen_is_host_and_port(void **state)
{
    static const char *const good[] = {"", "127.0.0.1:9824", "[::1]:1", "localhost:65535",
                                       "0.0.0.0:80"};
    static const char *const bad[] = {"example.org:80", "256.0.0.1:1", "1.2.3:80", ":80",
                                      "host",           "host:",       "host:0",   "host:65536",
                                      "::1:80",         "[]:80",       "[x]:80",   "a b:80",
                                      "host:80x",       "http://h:80", "[::1:80",  "host:-1"};
    char text[128];
    struct config config;

    for (size_t i = 0; i < array_length(good); i++) {
        (void)snprintf(text, sizeof(text), "[http]\nlisten = %s\n", good[i]);
        assert_int_equal(read_text(text, &config, NULL), 0);
        assert_string_equal(config.http.listen, good[i]);
    }
    assert_int_equal(read_text("[metrics]\nlisten = [::]:9825\n", &config, NULL), 0);
    assert_string_equal(config.metrics.listen, "[::]:9825");
    for (size_t i = 0; i < array_length(bad); i++) {
        (void)snprintf(text, sizeof(text), "[http]\nlisten = %s\n", bad[i]);
        expect_error(text,
                     "x.conf:2: http.listen: must be ADDRESS:PORT or empty, as in 127.0.0.1:9824");
    }
}

static void lines_and_files_are_bounded(void **state)
{
    static char text[70 * 1024];
    struct config config;
    struct error error;

    memset(text, '#', sizeof(text));
    text[CONFIG_LINE_BYTES - 2] = '\n';
    text[CONFIG_LINE_BYTES - 1] = '\0';
    assert_int_equal(read_text(text, &config, &error), 0);
    text[CONFIG_LINE_BYTES - 2] = '#';
    text[CONFIG_LINE_BYTES - 1] = '\n';
    text[CONFIG_LINE_BYTES] = '\0';
    expect_error(text, "x.conf:1: the line is too long");
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 64 == 63 ? '\n' : '#';
    assert_int_equal(read_bytes(text, 64 * 1024, &config, &error), 0);
    assert_int_equal(read_bytes(text, 64 * 1024 + 1, &config, &error), -EINVAL);
    assert_string_equal(error.text, "x.conf:1025: the file is longer than 64 KiB");
    assert_int_equal(read_bytes("[http]\n\0listen = x\n", 19, &config, &error), -EINVAL);
    assert_string_equal(error.text, "x.conf:2: a NUL byte");
}

/* As a ConfigMap or an editor may leave it. */
static void odd_layouts_are_fine(void **state)
{
    struct config config;

    assert_int_equal(read_text("\xEF\xBB\xBF[resize]\r\n\r\n  mode = never\r\n\tparallel:3 ; x\r\n"
                               "settle_ms=5",
                               &config, NULL),
                     0);
    assert_int_equal(config.resize.mode, RESIZE_NEVER);
    assert_int_equal(config.resize.parallel, 3);
    assert_int_equal(config.resize.settle_ms, 5);
    assert_int_equal(read_text("", &config, NULL), 0);
    assert_int_equal(config.resize.mode, RESIZE_GROW);
}

static void missing_file_returns_enoent(void **state)
{
    struct config config;
    struct error error;

    assert_int_equal(config_load(-1, "/", "/nonexistent/crustd.conf", &config, &error), -ENOENT);
    assert_string_equal(error.text, "/nonexistent/crustd.conf: No such file or directory");
    assert_true(config_load(-1, "/", "/tmp", &config, &error) < 0);
}

static void a_pipe_without_a_writer_is_not_a_configuration(void **state)
{
    char name[SCRATCH_BYTES], fifo[SCRATCH_BYTES + 8];
    struct config config;
    struct error error;

    assert_int_equal(scratch_directory_make(name), 0);
    (void)snprintf(fifo, sizeof(fifo), "%s/fifo", name);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(config_load(-1, "/", fifo, &config, &error), -EINVAL);
    assert_non_null(strstr(error.text, "nothing was written"));
    assert_int_equal(scratch_directory_remove(name), 0);
}

static void reads_the_hosts_file_inside_its_root(void **state)
{
    char name[SCRATCH_BYTES];
    struct config config;
    struct error error;
    int root, file;

    assert_int_equal(scratch_directory_make(name), 0);
    root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(root >= 0);
    assert_int_equal(config_load(root, name, NULL, &config, &error), 0);
    assert_int_equal(config.resize.mode, RESIZE_GROW);
    assert_int_equal(mkdirat(root, "etc", 0700), 0);
    assert_int_equal(mkdirat(root, "elsewhere", 0700), 0);
    assert_int_equal(symlinkat("/elsewhere", root, "etc/crustd"), 0);
    file = openat(root, "elsewhere/crustd.conf", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(file, "[resize]\nmode = never\n", 22), 22);
    close(file);
    assert_int_equal(config_load(root, name, NULL, &config, &error), 0);
    assert_int_equal(config.resize.mode, RESIZE_NEVER);
    assert_int_equal(config_load(root, name, "/nonexistent", &config, &error), -ENOENT);
    close(root);
    assert_int_equal(scratch_directory_remove(name), 0);
}

static void write_file(const char *directory, const char *name, const char *text)
{
    char path[2 * SCRATCH_BYTES + 64];
    FILE *stream;

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    stream = fopen(path, "we");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

/* Below the host's root, and beside a file that was named: sorted, the last one wins, an error
 * names its file. */
static void drop_ins_come_after_the_file(void **state)
{
    char name[SCRATCH_BYTES], file[SCRATCH_BYTES + 32], directory[sizeof(file) + 2],
        expected[sizeof(directory) + 64];
    struct config config;
    struct error error;
    int root;

    assert_int_equal(scratch_directory_make(name), 0);
    root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(file, sizeof(file), "%s/etc/crustd/crustd.conf", name);
    (void)snprintf(directory, sizeof(directory), "%s.d", file);
    assert_int_equal(mkdirat(root, "etc", 0700), 0);
    assert_int_equal(mkdirat(root, "etc/crustd", 0700), 0);
    assert_int_equal(mkdir(directory, 0700), 0);
    write_file(directory, "20-site.conf", "[resize]\nmode = never\nparallel = 3\n");
    write_file(directory, "10-first.conf", "[resize]\nmode = observe\nsettle_ms = 9\n");
    write_file(directory, "30-site.conf.dpkg-old", "[resize]\nmode = bad\n");
    write_file(directory, ".30-hidden.conf", "[resize]\nmode = bad\n");

    /* Without the main file, and with it. */
    assert_int_equal(config_load(root, name, NULL, &config, &error), 0);
    assert_int_equal(config.resize.mode, RESIZE_NEVER);
    write_file(name, "etc/crustd/crustd.conf",
               "[resize]\nmode = grow\nparallel = 2\nsweep_seconds = 7\n");
    for (int given = 0; given < 2; given++) {
        assert_int_equal(config_load(root, name, given ? file : NULL, &config, &error), 0);
        assert_int_equal(config.resize.mode, RESIZE_NEVER);
        assert_int_equal(config.resize.parallel, 3);
        assert_int_equal(config.resize.settle_ms, 9);
        assert_int_equal(config.resize.sweep_seconds, 7);
    }

    write_file(directory, "20-site.conf", "[resize]\nmode = bad\n");
    write_file(directory, "30-site.conf", "[resize]\nparallel = 4\n");
    (void)snprintf(expected, sizeof(expected), "%s/20-site.conf:2: resize.mode: ", directory);
    for (int given = 0; given < 2; given++) {
        assert_int_equal(config_load(root, name, given ? file : NULL, &config, &error), -EINVAL);
        assert_memory_equal(error.text, expected, strlen(expected));
        assert_int_equal(config.resize.mode, RESIZE_OBSERVE);
        assert_int_equal(config.resize.parallel, 4);
    }
    close(root);
    assert_int_equal(scratch_directory_remove(name), 0);
}

static void too_many_drop_ins_are_refused(void **state)
{
    char name[SCRATCH_BYTES], file[SCRATCH_BYTES + 16], directory[sizeof(file) + 2], number[32];
    struct config config;
    struct error error;

    assert_int_equal(scratch_directory_make(name), 0);
    write_file(name, "c", "");
    (void)snprintf(file, sizeof(file), "%s/c", name);
    (void)snprintf(directory, sizeof(directory), "%s.d", file);
    assert_int_equal(mkdir(directory, 0700), 0);
    for (int i = 0; i < 65; i++) {
        assert_int_equal(config_load(-1, "/", file, &config, &error), 0);
        (void)snprintf(number, sizeof(number), "%d.conf", i);
        write_file(directory, number, "");
    }
    assert_int_equal(config_load(-1, "/", file, &config, &error), -EINVAL);
    assert_non_null(strstr(error.text, "c.d: has 65 files"));
    assert_int_equal(scratch_directory_remove(name), 0);
}

static void knows_what_needs_a_restart(void **state)
{
    struct config old_config, new_config;
    char text[128], small[10];

    config_defaults(&old_config);
    new_config = old_config;
    config_needs_restart(&old_config, &new_config, text, sizeof(text));
    assert_string_equal(text, "");
    new_config.resize.mode = RESIZE_NEVER;
    new_config.resize.parallel = 1;
    config_needs_restart(&old_config, &new_config, text, sizeof(text));
    assert_string_equal(text, "");
    (void)snprintf(new_config.paths.database, CONFIG_PATH_BYTES, "/x");
    (void)snprintf(new_config.http.listen, sizeof(new_config.http.listen), "h:1");
    new_config.paths.kubelet.count = 0;
    config_needs_restart(&old_config, &new_config, text, sizeof(text));
    assert_string_equal(text, "paths.kubelet, paths.database, http.listen");
    config_needs_restart(&old_config, &new_config, small, sizeof(small));
    assert_string_equal(small, "paths.kub");
}

/* The lines of `text` that are not at the same place in `defaults`, with their section. */
static void append_differences(struct buffer *answer, char *text, char *defaults)
{
    char *line, *rest = text, *default_line, *default_rest = defaults, *section = NULL;

    while ((line = strsep(&rest, "\n")) && (default_line = strsep(&default_rest, "\n"))) {
        if (line[0] == '[')
            section = line;
        if (strcmp(line, default_line) != 0)
            assert_int_equal(buffer_append_format(answer, "%s %s\n", section, line), 0);
    }
}

static void compute_answer(const char *file, struct buffer *answer)
{
    struct config config, defaults;
    struct error error;

    config_defaults(&defaults);
    if (config_load(-1, "/", file, &config, &error) < 0) {
        assert_int_equal(buffer_append_format(answer, "%s\n", error.text), 0);
    } else {
        char *text = print(&config), *default_text = print(&defaults);

        append_differences(answer, text, default_text);
        free(text);
        free(default_text);
    }
}

static void check_golden(const char *file)
{
    cleanup(buffer_done) struct buffer answer = BUFFER_INIT(64 * 1024);
    cleanup(buffer_done) struct buffer expected = BUFFER_INIT(64 * 1024);
    bool update = getenv("UPDATE_GOLDEN") != NULL;
    char ok[256];
    FILE *stream;

    (void)snprintf(ok, sizeof(ok), "%.*s.ok", (int)(strlen(file) - strlen(".conf")), file);
    compute_answer(file, &answer);
    stream = fopen(ok, update ? "we" : "re");
    assert_non_null(stream);
    if (update)
        assert_true(fputs(buffer_text(&answer), stream) != EOF);
    else
        assert_int_equal(buffer_read_all(&expected, fileno(stream)), 0);
    (void)fclose(stream);
    if (!update)
        assert_string_equal(buffer_text(&answer), buffer_text(&expected));
}

static void files_give_their_golden_answers(void **state)
{
    glob_t files;

    assert_int_equal(glob(DATA "*.conf", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        check_golden(files.gl_pathv[i]);
    globfree(&files);
}

/* The file's reader has refused such a line before. */
static void a_value_is_no_longer_than_a_line(void **state)
{
    char text[CONFIG_LINE_BYTES + 1];
    struct config config;
    struct error error;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(config_value_parse(&config_keys[0], text, &config, &error), -EINVAL);
    assert_non_null(strstr(error.text, "more than"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_no_longer_than_a_line),
        cmocka_unit_test(defaults_are_valid),
        cmocka_unit_test(shipped_file_agrees_with_the_table),
        cmocka_unit_test(reports_place_and_reason),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(paths_are_absolute_and_bounded),
        cmocka_unit_test(lists_have_no_repeats_and_an_end),
        cmocka_unit_test(a_list_has_room_for_a_whole_line),
        cmocka_unit_test(listen_is_host_and_port),
        cmocka_unit_test(lines_and_files_are_bounded),
        cmocka_unit_test(odd_layouts_are_fine),
        cmocka_unit_test(missing_file_returns_enoent),
        cmocka_unit_test(a_pipe_without_a_writer_is_not_a_configuration),
        cmocka_unit_test(reads_the_hosts_file_inside_its_root),
        cmocka_unit_test(drop_ins_come_after_the_file),
        cmocka_unit_test(too_many_drop_ins_are_refused),
        cmocka_unit_test(knows_what_needs_a_restart),
        cmocka_unit_test(files_give_their_golden_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
