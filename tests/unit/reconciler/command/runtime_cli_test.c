/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_cli_test.c - which program a volume's runtime-cli may name, and where it is run. */
#include "tests/unit/tree.h"

#include "config/config.h"
#include "lib/base64url.h"
#include "lib/process_trust.h"
#include "lib/sha256.h"
#include "reconciler/command/runtime_cli.h"
#include "reconciler/core/context.h"

#define TARGET "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount"
#define TOOL   "/opt/kata/bin/runtime-tool"
#define KATA   "/opt/kata/bin/kata-runtime"
#define OURS   "/usr/bin/crustctl"
#define SHELL  "/bin/sh" /* on every machine, root's alone */

static struct config config;
static struct context context;
static const char *foreign; /* to the node's first process this is another file; NULL: nothing is */

/* ---- the node's first process ---- */

bool namespaces_first_has(const char *path, const struct stat *file)
{
    assert_true(file->st_ino != 0);
    return !foreign || strncmp(path, foreign, strlen(foreign)) != 0;
}

bool namespaces_show_all_processes(void)
{
    return true;
}

bool namespaces_user_is_first(void)
{
    return true;
}

/* ---- a node ---- */

static void allow(const char *program)
{
    struct config_list *list = &config.crust.runtime_cli_allow;

    assert_true(config_list_add(list, program));
}

static void put_program(const char *path, mode_t mode)
{
    tree_write(path, "#!/bin/sh\n");
    assert_int_equal(chmod(tree_path(path), mode), 0);
}

static int start(void **state)
{
    if (tree_start(state) < 0)
        return -1;
    config_defaults(&config);
    context = (struct context){.config = &config, .root = root};
    foreign = NULL;
    allow(TOOL);
    allow(KATA);
    allow(OURS);
    tree_make("/opt/kata/bin");
    tree_make("/usr/bin");
    put_program(TOOL, 0755);
    put_program(KATA, 0755);
    put_program(OURS, 0755);
    return 0;
}

static const char *hash_of(const char *target)
{
    static char hash[SHA256_HEX_BYTES];

    sha256_hex(target, strlen(target), hash);
    return hash;
}

static const char *encoded(const char *target)
{
    static char text[BASE64URL_ENCODED_LENGTH(sizeof(TARGET)) + 1];

    base64url_encode(target, strlen(target), text);
    return text;
}

static void name_in(const char *volumes, const char *name, const char *text)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", volumes, name);
    tree_make(path);
    (void)snprintf(path, sizeof(path), "%s/%s/runtime-cli", volumes, name);
    tree_write(path, text);
}

static void name(const char *text)
{
    name_in(config.paths.crust_volumes, hash_of(TARGET), text);
}

static struct runtime_cli found;

static void assert_outcome(int outcome, const char *text)
{
    struct error error = {0};

    found = (struct runtime_cli){.root = -2};
    assert_int_equal(runtime_cli_find(&context, TARGET, &found, &error), outcome);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

/* ---- the file ---- */

static void a_tool_is_found_below_the_root(void **state)
{
    (void)state;
    name(TOOL);
    assert_outcome(RUNTIME_CLI_FOUND, "");
    assert_string_equal(found.program, TOOL);
    assert_int_equal(found.root, root);
    assert_false(found.is_kata);
    name(KATA);
    assert_outcome(RUNTIME_CLI_FOUND, "");
    assert_true(found.is_kata);
}

static void a_line_may_end_as_editors_end_it(void **state)
{
    static const char *const lines[] = {TOOL "\n", TOOL "\r\n", TOOL "\n\n", TOOL " \t\n"};

    (void)state;
    for (size_t i = 0; i < array_length(lines); i++) {
        name(lines[i]);
        assert_outcome(RUNTIME_CLI_FOUND, "");
        assert_string_equal(found.program, TOOL);
    }
}

static void either_name_may_stand_in_either_directory(void **state)
{
    const struct {
        const char *volumes, *name, *tool;
    } later_wins[] = {
        {config.paths.kata_volumes, encoded(TARGET), TOOL},
        {config.paths.kata_volumes, hash_of(TARGET), KATA},
        {config.paths.crust_volumes, encoded(TARGET), TOOL},
        {config.paths.crust_volumes, hash_of(TARGET), KATA},
    };

    (void)state;
    for (size_t i = 0; i < array_length(later_wins); i++) {
        name_in(later_wins[i].volumes, later_wins[i].name, later_wins[i].tool);
        assert_outcome(RUNTIME_CLI_FOUND, "");
        assert_string_equal(found.program, later_wins[i].tool);
    }
}

static void a_volume_without_the_file_names_no_tool(void **state)
{
    (void)state;
    assert_outcome(RUNTIME_CLI_NONE, "");
    name_in(config.paths.crust_volumes, hash_of("/another"), TOOL);
    assert_outcome(RUNTIME_CLI_NONE, "");
}

static void crustctl_would_only_ask_crustd_again(void **state)
{
    (void)state;
    name(OURS);
    assert_outcome(RUNTIME_CLI_NONE, "");
}

static void a_file_that_is_none_is_not_believed(void **state)
{
    char path[512];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/%s", config.paths.crust_volumes, hash_of(TARGET));
    tree_make(path);
    (void)snprintf(path, sizeof(path), "%s/%s/runtime-cli", config.paths.crust_volumes,
                   hash_of(TARGET));
    assert_int_equal(symlink("/opt/kata/bin/runtime-tool", tree_path(path)), 0);
    assert_outcome(RUNTIME_CLI_UNSAFE, "runtime-cli");
    tree_remove(path);
    tree_make(path);
    assert_outcome(RUNTIME_CLI_UNSAFE, "runtime-cli");
}

/* ---- the program ---- */

static void only_what_is_configured_is_run(void **state)
{
    static const char *const names[] = {"/opt/kata/bin/other", "/opt/kata/bin/runtime-tool --evil",
                                        TOOL "/", TOOL "\n" TOOL};

    (void)state;
    put_program("/opt/kata/bin/other", 0755);
    for (size_t i = 0; i < 3; i++) {
        name(names[i]);
        assert_outcome(RUNTIME_CLI_UNSAFE, "crust.runtime_cli_allow");
    }
    name(names[3]);
    assert_outcome(RUNTIME_CLI_UNSAFE, "");
}

static void a_name_is_an_absolute_path(void **state)
{
    static const char above[] = "../" TOOL;
    static const char *const names[] = {"", "\n", "runtime-tool", above, "/opt/\xff"};

    (void)state;
    for (size_t i = 0; i < array_length(names); i++) {
        name(names[i]);
        assert_outcome(RUNTIME_CLI_UNSAFE, "names no absolute path");
    }
}

static void a_program_is_roots_alone(void **state)
{
    (void)state;
    name(TOOL);
    put_program(TOOL, 0775);
    assert_outcome(RUNTIME_CLI_UNSAFE, "others than root can write it");
    put_program(TOOL, 0757);
    assert_outcome(RUNTIME_CLI_UNSAFE, "others than root can write it");
    put_program(TOOL, 0755);
    assert_outcome(RUNTIME_CLI_FOUND, "");
    assert_int_equal(chmod(tree_path("/opt/kata"), 0777), 0);
    assert_outcome(RUNTIME_CLI_UNSAFE, "/opt/kata: others than root can write it");
}

static void a_path_that_is_not_a_program_is_reported(void **state)
{
    (void)state;
    name(TOOL);
    put_program(TOOL, 0644);
    assert_outcome(RUNTIME_CLI_UNSAFE, "no program");
    tree_remove(TOOL);
    assert_outcome(RUNTIME_CLI_UNSAFE, "No such file");
    tree_make(TOOL);
    assert_outcome(RUNTIME_CLI_UNSAFE, "no program");
}

/* The link may be in a directory that others write; where it leads to is what counts. */
static void a_link_is_followed_to_the_program_itself(void **state)
{
    (void)state;
    name(TOOL);
    tree_remove(TOOL);
    tree_make("/usr/libexec");
    put_program("/usr/libexec/tool-1.2", 0755);
    assert_int_equal(symlink("/usr/libexec/tool-1.2", tree_path(TOOL)), 0);
    assert_outcome(RUNTIME_CLI_FOUND, "");
    assert_string_equal(found.program, "/usr/libexec/tool-1.2");
    assert_int_equal(chmod(tree_path("/usr/libexec"), 0777), 0);
    assert_outcome(RUNTIME_CLI_UNSAFE, "/usr/libexec");
}

/* ---- where it runs ---- */

/* crustd without --root, whose own mounts may differ from the node's. */
static void in_our_own_root_the_node_must_have_the_same_files(void **state)
{
    cleanup(fd_closep) int ours = -1;
    char program[PATH_MAX];

    (void)state;
    assert_int_equal(path_open_root("/", &ours), 0);
    (void)snprintf(config.paths.crust_volumes, sizeof(config.paths.crust_volumes), "%s/run/crust",
                   scratch);
    tree_make("/run/crust");
    name_in("/run/crust", hash_of(TARGET), SHELL);
    allow(SHELL);
    context.root = ours;
    assert_outcome(RUNTIME_CLI_FOUND, "");
    assert_int_equal(found.root, -1);
    (void)snprintf(program, sizeof(program), "%s", found.program);
    foreign = program;
    assert_outcome(RUNTIME_CLI_UNSAFE, "has another file there");
    foreign = config.paths.crust_volumes;
    assert_outcome(RUNTIME_CLI_UNSAFE, "has another directory there");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, tree_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_tool_is_found_below_the_root),
        TEST(a_line_may_end_as_editors_end_it),
        TEST(either_name_may_stand_in_either_directory),
        TEST(a_volume_without_the_file_names_no_tool),
        TEST(crustctl_would_only_ask_crustd_again),
        TEST(a_file_that_is_none_is_not_believed),
        TEST(only_what_is_configured_is_run),
        TEST(a_name_is_an_absolute_path),
        TEST(a_program_is_roots_alone),
        TEST(a_path_that_is_not_a_program_is_reported),
        TEST(a_link_is_followed_to_the_program_itself),
        TEST(in_our_own_root_the_node_must_have_the_same_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
