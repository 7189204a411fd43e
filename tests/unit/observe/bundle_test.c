/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_test.c - config.json as containerd and CRI-O write it. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "observe/bundle.h"

static struct bundle bundle;
static struct error error;

static int parse(const char *text)
{
    bundle_done(&bundle);
    return bundle_parse(text, strlen(text), &bundle, &error);
}

static void reads_what_containerd_writes(void **state)
{
    (void)state;
    assert_int_equal(
        parse("{\"ociVersion\":\"1.1.0\",\"mounts\":["
              "{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
              "{\"destination\":\"/data\",\"type\":\"bind\",\"source\":\"/v/1\",\"options\":[]},"
              "{\"destination\":\"/vfio\",\"type\":\"vfiovol\",\"source\":\"/v/2\"},"
              "{\"destination\":\"/plain\",\"source\":\"/v/3\"},"
              "{\"destination\":\"/dev/shm\",\"type\":\"tmpfs\",\"source\":\"/v/4\"}],"
              "\"annotations\":{\"io.kubernetes.cri.container-type\":\"container\","
              "\"io.kubernetes.cri.sandbox-id\":\"abc\","
              "\"io.kubernetes.cri.sandbox-namespace\":\"default\","
              "\"io.kubernetes.cri.sandbox-name\":\"web\"}}"),
        FILE_READ);
    assert_string_equal(bundle.sandbox_id, "abc");
    assert_string_equal(bundle.pod_namespace, "default");
    assert_string_equal(bundle.pod_name, "web");
    assert_int_equal(bundle.mounts, 3);
    assert_string_equal(bundle.mount[0].source, "/v/1");
    assert_string_equal(bundle.mount[0].destination, "/data");
    assert_string_equal(bundle.mount[1].source, "/v/2");
    assert_string_equal(bundle.mount[2].source, "/v/3");
}

static void reads_what_cri_o_writes(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"annotations\":{\"io.kubernetes.cri-o.SandboxID\":\"abc\","
                           "\"io.kubernetes.pod.namespace\":\"default\","
                           "\"io.kubernetes.pod.name\":\"web\"}}"),
                     FILE_READ);
    assert_string_equal(bundle.sandbox_id, "abc");
    assert_string_equal(bundle.pod_namespace, "default");
    assert_string_equal(bundle.pod_name, "web");
    assert_int_equal(bundle.mounts, 0);
}

static void takes_the_unexpected_for_unknown(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"mounts\":{},\"annotations\":[]}"), FILE_READ);
    assert_null(bundle.sandbox_id);
    assert_int_equal(parse("{\"mounts\":[1,{\"source\":2},{\"source\":\"relative\","
                           "\"destination\":\"/x\",\"type\":\"bind\"}],"
                           "\"annotations\":{\"io.kubernetes.cri.sandbox-id\":7}}"),
                     FILE_READ);
    assert_int_equal(bundle.mounts, 0);
    assert_null(bundle.sandbox_id);
}

static void invalid_json_differs_from_truncated_json(void **state)
{
    (void)state;
    assert_int_equal(parse(""), FILE_CUT);
    assert_int_equal(parse("{\"mounts\":[{\"sou"), FILE_CUT);
    assert_int_equal(parse("[]"), FILE_WRONG);
    assert_int_equal(parse("{\"mounts\":[],\"Mounts\":[]}"), FILE_WRONG);
    assert_true(error.text[0]);
}

/* A large pod's has some thousand values and 200 KiB. */
static void more_than_a_container_has_is_not_read(void **state)
{
    enum { BYTES = 1024 * 1024, VALUES = 32768 };
    static char text[BYTES + 64];
    size_t length;

    (void)state;
    (void)snprintf(text, sizeof(text), "{}%*s", BYTES - 2, "");
    assert_int_equal(parse(text), FILE_READ);
    (void)snprintf(text, sizeof(text), "{}%*s", BYTES - 1, "");
    assert_int_equal(parse(text), FILE_WRONG);
    assert_non_null(strstr(error.text, "more than 1048576"));
    length = (size_t)snprintf(text, sizeof(text), "{\"x\":[");
    for (unsigned i = 0; i < VALUES; i++, length += 2)
        memcpy(text + length, "0,", 2);
    memcpy(text + length, "0]}", sizeof("0]}"));
    assert_int_equal(parse(text), FILE_WRONG);
    assert_non_null(strstr(error.text, "more values than are read"));
}

static int stop(void **state)
{
    (void)state;
    bundle_done(&bundle);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(reads_what_containerd_writes, stop),
        cmocka_unit_test_teardown(reads_what_cri_o_writes, stop),
        cmocka_unit_test_teardown(takes_the_unexpected_for_unknown, stop),
        cmocka_unit_test_teardown(invalid_json_differs_from_truncated_json, stop),
        cmocka_unit_test_teardown(more_than_a_container_has_is_not_read, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
