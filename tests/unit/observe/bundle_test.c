/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_test.c - config.json as containerd and CRI-O write it. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "lib/cleanup.h"
#include "observe/bundles.h"

#define GROW "crustd.dev/grow-file-system"

static struct bundle bundle;
static struct error error;

static int parse(const char *text)
{
    bundle_done(&bundle);
    return bundle_parse(text, strlen(text), GROW, &bundle, &error);
}

static void reads_what_containerd_writes(void **state)
{
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
              "\"io.kubernetes.cri.sandbox-uid\":\"uid-1\","
              "\"io.kubernetes.cri.sandbox-name\":\"web\"}}"),
        FILE_READ);
    assert_string_equal(bundle.pod_uid, "uid-1");
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
    assert_int_equal(parse("{\"annotations\":{\"io.kubernetes.cri-o.SandboxID\":\"abc\","
                           "\"io.kubernetes.pod.namespace\":\"default\","
                           "\"io.kubernetes.pod.uid\":\"uid-1\","
                           "\"io.kubernetes.pod.name\":\"web\"}}"),
                     FILE_READ);
    assert_string_equal(bundle.pod_uid, "uid-1");
    assert_string_equal(bundle.sandbox_id, "abc");
    assert_string_equal(bundle.pod_namespace, "default");
    assert_string_equal(bundle.pod_name, "web");
    assert_int_equal(bundle.mounts, 0);
}

static void takes_the_unexpected_for_unknown(void **state)
{
    assert_int_equal(parse("{\"mounts\":{},\"annotations\":[]}"), FILE_READ);
    assert_null(bundle.sandbox_id);
    assert_int_equal(parse("{\"mounts\":[1,{\"source\":2},{\"source\":\"relative\","
                           "\"destination\":\"/x\",\"type\":\"bind\"}],"
                           "\"annotations\":{\"io.kubernetes.cri.sandbox-id\":7}}"),
                     FILE_READ);
    assert_int_equal(bundle.mounts, 0);
    assert_null(bundle.sandbox_id);
    assert_int_equal(parse("{\"linux\":[]}"), FILE_READ);
    assert_int_equal(parse("{\"linux\":{\"devices\":{\"type\":\"b\"}}}"), FILE_READ);
    assert_int_equal(bundle.devices, 0);
}

/* Of type b, with two numbers. */
static void block_devices_are_read(void **state)
{
    static const char text[] =
        "{\"linux\":{\"namespaces\":[{\"type\":\"mount\"}],\"devices\":[1,{},"
        "{\"type\":\"b\",\"major\":7},"
        "{\"type\":\"c\",\"major\":7,\"minor\":1},"
        "{\"type\":7,\"major\":7,\"minor\":1},"
        "{\"type\":\"b\",\"major\":-1,\"minor\":1},"
        "{\"type\":\"b\",\"major\":4294967296,\"minor\":1},"
        "{\"type\":\"b\",\"major\":\"7\",\"minor\":1},"
        "{\"type\":\"b\",\"major\":259,\"minor\":1048575},"
        "{\"type\":\"b\",\"major\":7,\"minor\":0}]}}";

    assert_int_equal(parse(text), FILE_READ);
    assert_int_equal(bundle.devices, 2);
    assert_int_equal(bundle.device[0], makedev(259, 1048575));
    assert_int_equal(bundle.device[1], makedev(7, 0));
}

static void devices_are_bounded(void **state)
{
    static char text[(BUNDLE_DEVICES + 64) * 48];
    static const unsigned counts[] = {8000, BUNDLE_DEVICES + 1};

    for (size_t i = 0; i < array_length(counts); i++) {
        size_t length = (size_t)snprintf(text, sizeof(text), "{\"linux\":{\"devices\":[");

        for (unsigned minor = 0; minor < counts[i]; minor++)
            length += (size_t)snprintf(text + length, sizeof(text) - length,
                                       "%s{\"type\":\"b\",\"major\":8,\"minor\":%u}",
                                       minor ? "," : "", minor);
        (void)snprintf(text + length, sizeof(text) - length, "]}}");
        assert_int_equal(parse(text), i ? FILE_WRONG : FILE_READ);
        assert_int_equal(bundle.devices, i ? 0 : counts[i]);
    }
    assert_non_null(strstr(error.text, "more"));
}

/* The pod's owner says so with any value of the first, and with "true" alone of the second. */
static void the_pods_annotations_are_read(void **state)
{
    assert_int_equal(parse("{\"annotations\":{\"io.katacontainers.volume.confidential\":\"\","
                           "\"" GROW "\":\"true\"}}"),
                     FILE_READ);
    assert_true(bundle.is_confidential && bundle.grows_file_systems);
    assert_int_equal(parse("{\"annotations\":{\"" GROW "\":\"yes\"}}"), FILE_READ);
    assert_true(!bundle.is_confidential && !bundle.grows_file_systems);
    assert_int_equal(parse("{\"annotations\":{\"" GROW "\":true}}"), FILE_READ);
    assert_false(bundle.grows_file_systems);
    assert_int_equal(parse("{\"annotations\":{\"" GROW "\":\"true\",\"" GROW "\":\"false\"}}"),
                     FILE_WRONG);
    /* A node without that annotation. */
    bundle_done(&bundle);
    assert_int_equal(bundle_parse("{\"annotations\":{\"\":\"true\"}}", 27, "", &bundle, &error),
                     FILE_READ);
    assert_false(bundle.grows_file_systems);
}

static void invalid_json_differs_from_truncated_json(void **state)
{
    assert_int_equal(parse(""), FILE_CUT);
    assert_int_equal(parse("{\"mounts\":[{\"sou"), FILE_CUT);
    assert_int_equal(parse("[]"), FILE_WRONG);
    assert_int_equal(parse("{\"mounts\":[],\"Mounts\":[]}"), FILE_WRONG);
    assert_true(error.text[0]);
}

static void refuses_twice_only_what_is_read(void **state)
{
    assert_int_equal(
        parse("{\"process\":{\"x\":1,\"X\":2},\"linux\":{\"sysctl\":{\"a.b\":\"1\",\"A.b\":\"2\"}},"
              "\"annotations\":{\"team\":\"a\",\"Team\":\"b\",\"team\":\"c\","
              "\"IO.kubernetes.cri.sandbox-id\":\"other\","
              "\"io.kubernetes.cri.sandbox-id\":\"abc\"},"
              "\"mounts\":[{\"source\":\"/v\",\"destination\":\"/d\",\"x\":1,\"x\":2}]}"),
        FILE_READ);
    assert_string_equal(bundle.sandbox_id, "abc");
    assert_int_equal(bundle.mounts, 1);
    assert_int_equal(parse("{\"annotations\":{\"io.kubernetes.cri.sandbox-id\":\"a\","
                           "\"io.kubernetes.cri.sandbox-id\":\"b\"}}"),
                     FILE_WRONG);
    assert_int_equal(parse("{\"mounts\":[{\"source\":\"/v\",\"Source\":\"/w\"}]}"), FILE_WRONG);
    assert_string_equal(error.text, "key a second time at byte 26");
    assert_int_equal(parse("{\"annotations\":{},\"annotations\":{}}"), FILE_WRONG);
}

/* Service links make some thousand variables, and variables may be long. */
static void the_size_is_bounded(void **state)
{
    enum { BYTES = 8 * 1024 * 1024, VALUES = 40000 };
    static char text[BYTES + 64];
    size_t length;

    length = (size_t)snprintf(text, sizeof(text), "{\"process\":{\"env\":[");
    for (unsigned i = 0; i < VALUES; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length,
                                   "\"SERVICE_%u_PORT_8080_TCP_ADDR=10.96.0.1\",", i);
    length += (size_t)snprintf(text + length, sizeof(text) - length,
                               "\"A=%*s\"]},\"mounts\":"
                               "[{\"source\":\"/v\",\"destination\":\"/d\"}]}",
                               (int)(BYTES - length - 58), "");
    memset(text + length, ' ', BYTES - length);
    assert_int_equal(parse(text), FILE_READ);
    assert_int_equal(strlen(text), BYTES);
    assert_int_equal(bundle.mounts, 1);
    assert_true(bundle.bytes < 256);
    text[BYTES] = ' ';
    assert_int_equal(parse(text), FILE_WRONG);
    assert_non_null(strstr(error.text, "more than 8388608"));
}

static void mounts_are_bounded(void **state)
{
    static char text[512 * 1024];
    static const unsigned counts[] = {BUNDLE_MOUNTS, BUNDLE_MOUNTS + 1, 90000};
    static const char *const says[] = {"", "mounts: 1025 elements, more than 1024",
                                       "mounts: more values than are read at byte"};

    for (size_t i = 0; i < array_length(counts); i++) {
        size_t length = (size_t)snprintf(text, sizeof(text), "{\"mounts\":[");

        for (unsigned j = 0; j < counts[i]; j++, length += 3)
            memcpy(text + length, "{},", 3);
        memcpy(text + length - 1, "]}", sizeof("]}"));
        assert_int_equal(parse(text), i ? FILE_WRONG : FILE_READ);
        assert_memory_equal(error.text, says[i], strlen(says[i]));
    }
}

static int stop(void **state)
{
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
        cmocka_unit_test_teardown(refuses_twice_only_what_is_read, stop),
        cmocka_unit_test_teardown(the_size_is_bounded, stop),
        cmocka_unit_test_teardown(mounts_are_bounded, stop),
        cmocka_unit_test_teardown(block_devices_are_read, stop),
        cmocka_unit_test_teardown(devices_are_bounded, stop),
        cmocka_unit_test_teardown(the_pods_annotations_are_read, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
