/* SPDX-License-Identifier: Apache-2.0 */
/* program_test.c - what a path of Kata's leads to, and what is said of it. */
#include "tests/unit/doctor/node.h"

#include <sys/xattr.h>

#include "doctor/checks.h"
#include "lib/process.h"

/* Nothing on this machine has such a name. */
#define VM        "vm-of-unit-tests"
#define CRUST     "/opt/crustd/bin/crust-" VM
#define DIRECTORY "/run/crustd/qemu"

static void put(const struct node *node, const char *path, mode_t mode)
{
    char full[512];

    node_write(node, path, "");
    (void)snprintf(full, sizeof(full), "%s%s", node->name, path);
    assert_int_equal(chmod(full, mode), 0);
}

static struct program find(const struct node *node, const char *path)
{
    struct program program;

    program_find(node->root, path, &program);
    return program;
}

/* Where the first process's root is out of reach, absence is certain in directories that are there.
 */
static void make_directories(const struct node *node)
{
    node_make(node, "/opt/kata/bin", 0755);
    node_make(node, "/usr/bin", 0755);
}

static void a_path_leads_somewhere_or_nowhere(void **state)
{
    const struct node *node = *state;

    make_directories(*state);
    assert_int_equal(find(node, "").state, PROGRAM_UNNAMED);
    assert_int_equal(find(node, "/opt/" VM).state, PROGRAM_ABSENT);
    put(node, "/opt/" VM, 0644);
    assert_int_equal(find(node, "/opt/" VM).state, PROGRAM_NOT_EXECUTABLE);
    assert_int_equal(find(node, "/opt").state, PROGRAM_NOT_EXECUTABLE);
    put(node, "/opt/" VM, 0755);
    assert_int_equal(find(node, "/opt/" VM).state, PROGRAM_THERE);
    assert_false(find(node, "/opt/" VM).is_crust);
    node_link(node, "/gone", "/opt/link");
    assert_int_equal(find(node, "/opt/link").state, PROGRAM_ABSENT);
}

/* As in a pod, where only a part of the node is mounted. */
static void the_rest_of_the_node_is_looked_at(void **state)
{
    if (!namespaces_show_all_processes() || access("/proc/1/root/bin/sh", X_OK) < 0)
        skip();
    assert_int_equal(find(*state, "/proc/self/exe").state, PROGRAM_THERE);
    assert_int_equal(find(*state, "/bin/sh").state, PROGRAM_THERE);
}

static void a_program_out_of_sight_is_not_judged(void **state)
{
    const struct node *node = *state;

    if (namespaces_show_all_processes() && access("/proc/1/root/bin/sh", X_OK) == 0)
        skip();
    assert_int_equal(find(node, "/opt/" VM "/" VM).state, PROGRAM_UNSEEN);
    put(node, CRUST, 0755);
    node_make(node, "/usr/bin", 0755);
    assert_int_equal(find(node, CRUST).qemu, PROGRAM_UNSEEN);
    put(node, "/usr/bin/" VM, 0755);
    assert_int_equal(find(node, CRUST).qemu, PROGRAM_THERE);
}

static void crust_qemu_wants_its_qemu(void **state)
{
    const struct node *node = *state;
    struct program program;

    make_directories(*state);
    put(node, CRUST, 0755);
    program = find(node, CRUST);
    assert_true(program.is_crust);
    assert_string_equal(program.qemu_name, VM);
    assert_int_equal(program.qemu, PROGRAM_ABSENT);
    put(node, "/usr/bin/" VM, 0755);
    assert_int_equal(find(node, CRUST).qemu, PROGRAM_THERE);
    put(node, "/usr/bin/" VM, 0644);
    assert_int_equal(find(node, CRUST).qemu, PROGRAM_ABSENT);
    put(node, "/opt/kata/bin/" VM, 0755);
    assert_int_equal(find(node, CRUST).qemu, PROGRAM_THERE);
}

/* Kata follows a link before it runs anything, and so the link's name is lost. */
static void a_link_is_what_it_leads_to(void **state)
{
    const struct node *node = *state;

    put(node, CRUST, 0755);
    put(node, "/opt/crustd/bin/" VM, 0755);
    make_directories(node);
    node_link(node, CRUST, "/opt/kata/bin/qemu");
    assert_true(find(node, "/opt/kata/bin/qemu").is_crust);
    assert_int_equal(find(node, "/opt/kata/bin/qemu").qemu, PROGRAM_THERE);
    node_link(node, CRUST, "/opt/kata/bin/" VM);
    assert_true(find(node, "/opt/kata/bin/" VM).is_crust);
}

static void a_link_back_is_no_qemu(void **state)
{
    const struct node *node = *state;

    make_directories(*state);
    put(node, CRUST, 0755);
    node_link(node, "crust-" VM, "/opt/crustd/bin/" VM);
    assert_int_equal(find(node, CRUST).qemu, PROGRAM_ABSENT);
}

static void its_directory_must_be_roots_alone(void **state)
{
    const struct node *node = *state;

    if (geteuid() != 0)
        skip();
    make_directories(*state);
    put(node, CRUST, 0755);
    assert_false(find(node, CRUST).has_directory);
    node_make(node, DIRECTORY, 0700);
    assert_true(find(node, CRUST).has_directory);
    node_make(node, DIRECTORY, 0710);
    assert_false(find(node, CRUST).has_directory);
    node_make(node, DIRECTORY, 0700);
    node_make(node, "/run/crustd", 0775);
    assert_false(find(node, CRUST).has_directory);
}

static void label(const struct node *node, const char *path, const char *text)
{
    char full[512];

    (void)snprintf(full, sizeof(full), "%s%s", node->name, path);
    if (setxattr(full, "security.selinux", text, strlen(text) + 1, 0) < 0)
        skip();
}

static void labels_are_compared_by_their_type(void **state)
{
    const struct node *node = *state;

    make_directories(*state);
    put(node, CRUST, 0755);
    put(node, "/usr/bin/" VM, 0755);
    label(node, "/usr/bin/" VM, "system_u:object_r:qemu_exec_t:s0");
    assert_false(find(node, CRUST).has_other_label);
    label(node, CRUST, "unconfined_u:object_r:qemu_exec_t:s0");
    assert_false(find(node, CRUST).has_other_label);
    label(node, CRUST, "system_u:object_r:bin_t:s0");
    assert_true(find(node, CRUST).has_other_label);
}

/* ---- what is said -------------------------------------------------------------------------- */

static const struct program well = {
    .state = PROGRAM_THERE,
    .is_crust = true,
    .qemu_name = VM,
    .qemu = PROGRAM_THERE,
    .has_directory = true,
};

static void judge(struct node *node, const struct program *program)
{
    static const struct kata_table table = {.path = CRUST, .path_file = "/k/config.d/50"};

    node_begin(node);
    kata_judge_programs(&table, program, "kata", &node->written.findings);
    written_end(&node->written);
}

static void expect(struct node *node, struct program program, const char *level, const char *what)
{
    judge(node, &program);
    assert_int_equal(cJSON_GetArraySize(node->written.list), 1);
    written_expect(&node->written, "kata_program", what, level);
    assert_non_null(json_string(node->written.list->child, "remedy"));
}

static void a_working_program_has_no_finding(void **state)
{
    struct node *node = *state;

    judge(node, &well);
    assert_int_equal(cJSON_GetArraySize(node->written.list), 0);
    judge(node, &(struct program){.state = PROGRAM_THERE});
    assert_int_equal(cJSON_GetArraySize(node->written.list), 0);
    judge(node, &(struct program){.state = PROGRAM_UNNAMED});
    assert_int_equal(cJSON_GetArraySize(node->written.list), 0);
}

static void a_problem_that_keeps_pods_from_starting_is_an_error(void **state)
{
    struct node *node = *state;
    struct program program = well;

    expect(node, (struct program){.state = PROGRAM_ABSENT}, "error",
           "path = " CRUST " does not exist: no pod of these starts");
    expect(node, (struct program){.state = PROGRAM_NOT_EXECUTABLE}, "error", "no program that can");
    expect(node, (struct program){.state = PROGRAM_UNSEEN}, "warning", "cannot be told");
    expect(node, (struct program){.state = PROGRAM_ABSENT, .is_crust = true}, "error",
           "does not exist");
    assert_non_null(strstr(json_string(node->written.list->child, "remedy"), "make install"));
    assert_non_null(strstr(json_string(node->written.list->child, "remedy"), "/k/config.d/50"));
    program.qemu = PROGRAM_ABSENT;
    expect(node, program, "error", "finds no " VM " beside itself");
    program.qemu = PROGRAM_UNSEEN;
    expect(node, program, "warning", "whether " VM " is there");
}

static void reports_why_no_monitor_can_be_added(void **state)
{
    struct program program = well;

    program.has_directory = false;
    expect(*state, program, "error", "adds no monitor");
    program = well;
    program.has_other_label = true;
    expect(*state, program, "warning", "different SELinux types");
}

static void valid_paths_only_bind_annotations(void **state)
{
    struct node *node = *state;
    const struct kata_table table = {.path = CRUST,
                                     .path_file = "/k/c",
                                     .valid_paths = 4,
                                     .valid_path = {CRUST, "/opt/" VM, "/opt/*/" VM, "/bin/sh"}};

    make_directories(*state);
    kata_judge_programs(&table, &(struct program){0}, "kata", &node->written.findings);
    written_end(&node->written);
    assert_int_equal(cJSON_GetArraySize(node->written.list), 1);
    written_expect(&node->written, "kata_program", "names /opt/" VM ", which is not there", "note");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(a_path_leads_somewhere_or_nowhere),
        NODE_TEST(the_rest_of_the_node_is_looked_at),
        NODE_TEST(a_program_out_of_sight_is_not_judged),
        NODE_TEST(crust_qemu_wants_its_qemu),
        NODE_TEST(a_link_is_what_it_leads_to),
        NODE_TEST(a_link_back_is_no_qemu),
        NODE_TEST(its_directory_must_be_roots_alone),
        NODE_TEST(labels_are_compared_by_their_type),
        NODE_TEST(a_working_program_has_no_finding),
        NODE_TEST(a_problem_that_keeps_pods_from_starting_is_an_error),
        NODE_TEST(reports_why_no_monitor_can_be_added),
        NODE_TEST(valid_paths_only_bind_annotations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
