/* SPDX-License-Identifier: Apache-2.0 */
/* sandboxes_test.c - the verdicts on the VMM and the guest of a sandbox: able, unable, untried. */
#include "tests/unit/doctor/node.h"

#include <signal.h>
#include <sys/wait.h>

#include "doctor/checks.h"

#define ROW(members)                                                                               \
    "[{\"sandbox_id\":\"5a\",\"boot_id\":\"b\",\"pod_namespace\":\"shop\",\"pod_name\":\"db-0\","  \
    "\"volumes\":2,\"volume_names\":\"pv-a, pv-b\"," members "}]"
#define QEMU        "\"runtime\":\"kata-go\",\"hypervisor\":\"qemu\""
#define MONITOR     "\"control_socket\":\"/m\""
#define NO_MONITOR  "\"control_socket\":null"
#define ABLE        "\"companion_ability\":\"able\""
#define UNSUPPORTED "\"agent_unsupported\""
#define UNABLE                                                                                     \
    "\"companion_ability\":" UNSUPPORTED ",\"agent_ability\":\"agent_denied\","                    \
    "\"shim_ability\":" UNSUPPORTED

static void judge(struct node *node, const char *rows)
{
    cleanup(json_deletep) cJSON *sandboxes = NULL;

    node_begin(node);
    assert_int_equal(
        json_parse(rows, strlen(rows), (struct json_limits){1 << 16, 4, 0}, &sandboxes, NULL), 0);
    node->written.findings.sandboxes = sandboxes;
    sandboxes_judge(&node->written.findings);
    written_end(&node->written);
}

/* One finding about a sandbox. */
static void expect(struct node *node, const char *rows, const char *level, const char *what)
{
    judge(node, rows);
    assert_int_equal(written_count(&node->written, "sandbox"), 1);
    written_expect(&node->written, "sandbox", what, level);
}

static void expect_remedy(struct node *node, const char *what, const char *remedy)
{
    const cJSON *finding = written_find(&node->written, "sandbox", what);

    assert_non_null(strstr(json_string(finding, "remedy"), remedy));
}

static void a_runtime_that_passes_no_group_on_is_noted(void **state)
{
    const struct findings *findings = &((struct node *)*state)->written.findings;

    judge(*state, ROW(QEMU "," MONITOR));
    assert_false(findings->ignores_group);
    judge(*state, ROW("\"runtime\":\"kata-rs\",\"hypervisor\":\"qemu\""));
    assert_true(findings->ignores_group);
    judge(*state, ROW("\"runtime\":\"unknown\",\"hypervisor\":\"qemu\""));
    assert_true(findings->ignores_group);
}

/* A file that is too large, or torn, is no impostor. */
static void a_process_is_ended_because_of_a_process_only(void **state)
{
    struct node *node = *state;
    cleanup(json_deletep) cJSON *distrusted = cJSON_CreateObject();

    assert_non_null(cJSON_AddStringToObject(distrusted, "5a",
                                            "process 7 names the sandbox but is not trusted"));
    assert_non_null(cJSON_AddStringToObject(distrusted, "5b", "more containers than are read"));
    node_begin(node);
    sandboxes_judge_distrusted(distrusted, &node->written.findings);
    written_end(&node->written);
    written_expect(&node->written, "sandbox", "not believed: process 7", "warning");
    expect_remedy(node, "not believed: process 7", "ps -o");
    written_expect(&node->written, "sandbox", "left out: more containers", "warning");
    expect_remedy(node, "left out: more containers", "No process has to end");
}

static void an_orphan_has_to_be_ended(void **state)
{
    struct node *node = *state;
    const cJSON *finding;

    judge(node, ROW(QEMU "," NO_MONITOR ",\"orphaned\":1,\"vmm_pid\":4711"));
    assert_int_equal(written_count(&node->written, "sandbox"), 0);
    assert_int_equal(written_count(&node->written, "restart"), 0);
    written_expect(&node->written, "orphan", "process 4711", "error");
    written_expect(&node->written, "orphan", "pv-a, pv-b", "error");
    finding = written_find(&node->written, "orphan", "4711");
    assert_non_null(strstr(json_string(finding, "remedy"), "kill 4711"));
}

static void qemu(void **state)
{
    struct node *node = *state;

    expect(node, ROW(QEMU "," MONITOR "," ABLE), "ok", "QEMU has a monitor for crustd");
    expect(node, ROW(QEMU "," MONITOR "," ABLE), "ok", "2 volumes: pv-a, pv-b");
    expect(node, ROW(QEMU "," MONITOR "," ABLE), "ok", "sandbox 5a (shop/db-0)");
    expect(node, ROW(QEMU "," NO_MONITOR "," ABLE), "error", "no monitor");
    node->config.resize.qemu_monitor = QEMU_MONITOR_OFF;
    expect(node, ROW(QEMU "," NO_MONITOR "," ABLE), "note", "resize.qemu_monitor = off");
}

/* What is on them is the pod's affair. */
static void raw_block_claims_need_the_vmm_alone(void **state)
{
    struct node *node = *state;

    expect(node, ROW(QEMU "," MONITOR "," UNABLE ",\"block_claims\":2,\"raw_claims\":2"), "ok",
           "its guest is asked nothing");
    expect(node, ROW(QEMU "," MONITOR "," UNABLE ",\"block_claims\":2,\"raw_claims\":2"), "ok",
           "2 volumes (raw block claims: 2): pv-a, pv-b");
    expect(node, ROW(QEMU "," NO_MONITOR ",\"block_claims\":2,\"raw_claims\":2"), "error",
           "no monitor");
    expect(node, ROW(QEMU "," MONITOR "," UNABLE ",\"block_claims\":1,\"raw_claims\":1"), "note",
           "agent_denied, shim agent_unsupported, helper not tried");
}

/* Two sandboxes of this boot, and one of the last. */
static void judge_volumes(struct node *node, const char *first, const char *second)
{
    char rows[1024];

    (void)snprintf(rows, sizeof(rows),
                   "[{\"sandbox_id\":\"5a\",\"boot_id\":\"b\",\"volumes\":2%s},"
                   "{\"sandbox_id\":\"5b\",\"boot_id\":\"b\",\"volumes\":1%s},"
                   "{\"sandbox_id\":\"5c\",\"boot_id\":\"a\",\"volumes\":9,\"not_resizable\":9}]",
                   first, second);
    judge(node, rows);
}

#define NOT_RESIZABLE(count, names)                                                                \
    ",\"not_resizable\":" #count ",\"not_resizable_names\":\"" names "\""

static void volumes_that_would_not_grow(void **state)
{
    struct node *node = *state;

    judge_volumes(node, "", "");
    written_expect(&node->written, "resizable", "any of the 3 volumes", "ok");
    judge_volumes(node, ",\"resizable_unknown\":1", "");
    written_expect(&node->written, "resizable", "1 of 3 volumes", "note");
    judge_volumes(node, ",\"resizable_unknown\":1", NOT_RESIZABLE(1, "pv-c (monitor_missing)"));
    written_expect(&node->written, "resizable",
                   "would not reach 1 of 3 volumes in use: pv-c (monitor_missing)", "error");
    judge_volumes(node, NOT_RESIZABLE(2, "pv-a (agent_failed), pv-b (agent_failed)"),
                  NOT_RESIZABLE(1, "pv-c (monitor_missing)"));
    written_expect(&node->written, "resizable",
                   "3 of 3 volumes in use: pv-a (agent_failed), pv-b (agent_failed), pv-c "
                   "(monitor_missing)",
                   "error");
    judge(node, "[]");
    assert_int_equal(written_count(&node->written, "resizable"), 0);
}

static void the_remedy_serves_both_runtimes(void **state)
{
    struct node *node = *state;

    judge(node, ROW("\"runtime\":\"kata-rs\",\"hypervisor\":\"qemu\""));
    assert_non_null(strstr(json_string(node->written.list->child, "remedy"), "crust-qemu.toml"));
    judge(node, ROW("\"runtime\":\"kata-go\",\"hypervisor\":\"qemu\""));
    assert_non_null(strstr(json_string(node->written.list->child, "remedy"), "crust-qemu.toml"));
}

/* A QEMU whose monitor at /m stands behind this option. */
static void expect_monitor(struct node *node, const char *option, const char *value,
                           const char *level, const char *what)
{
    siginfo_t info;
    char row[512];
    pid_t pid = fork();

    if (pid == 0) {
        execl("/bin/sh", "qemu", "-c", "kill -STOP $$", option, value, (char *)NULL);
        _exit(127);
    }
    /* Only then are its arguments in place for certain. */
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT), 0);
    (void)snprintf(row, sizeof(row), ROW(QEMU "," MONITOR "," ABLE ",\"vmm_pid\":%d"), (int)pid);
    expect(node, row, level, what);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static void which_monitor_it_is(void **state)
{
    struct node *node = *state;

    expect(node, ROW(QEMU ",\"control_socket\":\"/run/crustd/qemu/5a.sock\"," ABLE), "ok",
           "a monitor for crustd (crust-qemu's, QMP)");
    expect(node, ROW(QEMU ",\"control_socket\":\"/run/vc/vm/5a/qmp.sock\"," ABLE), "ok",
           "(the main one, QMP)");
    expect(node, ROW(QEMU "," MONITOR "," ABLE), "ok", "(an extra monitor);");
    expect_monitor(node, "-qmp", "unix:path=/m,server=on,wait=off", "ok",
                   "(an extra monitor, QMP)");
    expect_monitor(node, "-monitor", "unix:/m,server=on", "error", "only a human monitor (HMP)");
    expect_monitor(node, "-monitor", "unix:/m2,server=on", "ok", "(an extra monitor);");
}

#define POD(id, name, volumes, socket)                                                             \
    "{\"sandbox_id\":\"" id "\",\"boot_id\":\"b\",\"pod_namespace\":\"shop\"," QEMU                \
    ",\"pod_name\":" name ",\"volumes\":" volumes "," socket "," ABLE "}"

static void pods_to_restart(void **state)
{
    static const char many_of_them[] = POD("5", "\"a-longer-name\"", "1", NO_MONITOR);
    struct node *node = *state;
    cleanup(buffer_done) struct buffer many = BUFFER_INIT(1 << 16);
    const char *what;

    judge(node,
          "[" POD("1", "\"a\"", "0", NO_MONITOR) "," POD("2", "null", "1", NO_MONITOR) "," POD(
              "3", "\"c\"", "2", NO_MONITOR) "," POD("4", "\"d\"", "1", MONITOR) "]");
    written_expect(&node->written, "restart",
                   "3 running sandboxes have no monitor that crustd may use, 2 of them with "
                   "volumes (named first): sandbox 2, shop/c, shop/a",
                   "error");
    judge(node, "[" POD("1", "\"a\"", "0", NO_MONITOR) "]");
    written_expect(&node->written, "restart", "1 running sandbox has no monitor", "note");
    judge(node, "[" POD("4", "\"d\"", "1", MONITOR) "]");
    assert_int_equal(written_count(&node->written, "restart"), 0);

    for (int i = 0; i < 100; i++)
        assert_int_equal(buffer_append_format(&many, "%s%s", i ? "," : "[", many_of_them), 0);
    assert_int_equal(buffer_append_text(&many, "]"), 0);
    judge(node, buffer_text(&many));
    what = json_string(written_find(&node->written, "restart", "100 running sandboxes"), "what");
    assert_non_null(strstr(what, "shop/a-longer-name, and "));
    assert_string_equal(strrchr(what, ' '), " more");
}

static void firecracker(void **state)
{
    struct node *node = *state;

    expect(node, ROW("\"hypervisor\":\"firecracker\"," MONITOR "," ABLE), "error",
           "resize.firecracker");
    node->config.resize.firecracker = true;
    expect(node, ROW("\"hypervisor\":\"firecracker\"," MONITOR "," ABLE), "ok", "can be told");
    expect(node, ROW("\"hypervisor\":\"firecracker\"," ABLE), "error", "no API socket");
}

static void vmm_that_cannot_resize_drives_is_an_error(void **state)
{
    expect(*state, ROW("\"hypervisor\":\"dragonball\"," ABLE), "error",
           "Dragonball cannot be told of a new size");
    expect(*state, ROW("\"hypervisor\":\"cloud-hypervisor\"," ABLE), "error", "no API socket");
    expect(*state, ROW("\"hypervisor\":\"cloud-hypervisor\"," MONITOR "," ABLE), "note",
           "Cloud Hypervisor has not said its version yet");
    expect(*state,
           ROW("\"hypervisor\":\"cloud-hypervisor\",\"vmm_version\":\"52.0.0\"," MONITOR "," ABLE),
           "ok", "Cloud Hypervisor 52.0.0 can be told");
    expect(
        *state,
        ROW("\"hypervisor\":\"cloud-hypervisor\",\"vmm_version\":\"51.1.0\","
            "\"hypervisor_reasons\":\"hypervisor_version\"," MONITOR "," ABLE),
        "error",
        "Cloud Hypervisor 51.1.0 cannot resize a block device: needs Cloud Hypervisor 52 or later "
        "(this is 51.1, the one that Kata 4.1.0 ships)");
    expect(*state,
           ROW("\"hypervisor\":\"cloud-hypervisor\",\"vmm_version\":\"50.2.0\"," MONITOR "," ABLE),
           "error", "needs Cloud Hypervisor 52 or later (this is 50.2);");
}

static void guests(void **state)
{
    struct node *node = *state;

    expect(node, ROW(QEMU "," MONITOR ",\"agent_ability\":\"able\""), "ok", "by the agent");
    expect(node, ROW(QEMU "," MONITOR), "note", "companion not tried, agent not tried");
    expect(node, ROW(QEMU "," MONITOR ",\"agent_ability\":" UNSUPPORTED), "note",
           "agent agent_unsupported");
    expect(node, ROW(QEMU "," MONITOR "," UNABLE), "note", "helper not tried");
    expect(node, ROW(QEMU "," MONITOR "," UNABLE ",\"helper_ability\":\"able\""), "ok",
           "by the helper");
    expect(node, ROW(QEMU "," MONITOR "," UNABLE ",\"helper_ability\":\"agent_policy_denied\""),
           "error", "helper agent_policy_denied");
    node->config.guest.helper = false;
    expect(node, ROW(QEMU "," MONITOR "," UNABLE), "error", "agent agent_denied");
    node->config.agent.routes[0] = ROUTE_AGENT;
    node->config.agent.routes[1] = ROUTE_NONE;
    expect(node, ROW(QEMU "," MONITOR ",\"agent_ability\":" UNSUPPORTED), "error",
           "its guest: agent agent_unsupported");
    node->config.agent.routes[0] = ROUTE_NONE;
    expect(node, ROW(QEMU "," MONITOR), "note", "its guest is never told");
}

static void how_the_last_calls_ended(void **state)
{
    expect(*state, ROW(QEMU "," MONITOR "," ABLE ",\"hypervisor_reasons\":\"read_only\""), "error",
           "QEMU was asked in vain: read_only; its guest grows by the companion");
    expect(*state, ROW(QEMU "," MONITOR "," ABLE ",\"guest_reasons\":\"agent_failed\""), "error",
           "its guest was asked in vain: agent_failed");
    expect(*state, ROW(QEMU "," MONITOR "," ABLE ",\"guest_reasons\":\"helper_missing\""), "error",
           "its guest was asked in vain: helper_missing");
    expect_remedy(*state, "its guest was asked in vain", "crustctl explain VOL says what helps");
}

static void a_sandbox_without_volumes_loses_nothing(void **state)
{
    expect(*state,
           "[{\"sandbox_id\":\"5a\",\"boot_id\":\"b\",\"volumes\":0,\"volume_names\":null," QEMU
           "," NO_MONITOR "}]",
           "note", "0 volumes");
}

static void no_sandbox_runs(void **state)
{
    struct node *node = *state;

    expect(node, "[]", "note", "no sandbox is known to run");
    expect(node, "[{\"sandbox_id\":\"5a\",\"boot_id\":\"another\",\"volumes\":1}]", "note",
           "no sandbox is known to run");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(a_runtime_that_passes_no_group_on_is_noted),
        NODE_TEST(an_orphan_has_to_be_ended),
        NODE_TEST(qemu),
        NODE_TEST(raw_block_claims_need_the_vmm_alone),
        NODE_TEST(a_process_is_ended_because_of_a_process_only),
        NODE_TEST(volumes_that_would_not_grow),
        NODE_TEST(the_remedy_serves_both_runtimes),
        NODE_TEST(which_monitor_it_is),
        NODE_TEST(pods_to_restart),
        NODE_TEST(firecracker),
        NODE_TEST(vmm_that_cannot_resize_drives_is_an_error),
        NODE_TEST(guests),
        NODE_TEST(how_the_last_calls_ended),
        NODE_TEST(a_sandbox_without_volumes_loses_nothing),
        NODE_TEST(no_sandbox_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
