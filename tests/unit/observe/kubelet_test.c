/* SPDX-License-Identifier: Apache-2.0 */
/* kubelet_test.c - pod directories that are there, and those that are not. */
#include "tests/unit/tree.h"

#include "observe/kubelet.h"

#define KUBELET "/var/lib/kubelet"
#define PODS    KUBELET "/pods"
#define PV      PODS "/uid-1/volumes/kubernetes.io~csi/pv-1"

static struct observed_kubelet look(void)
{
    struct observed_kubelet observed;

    assert_int_equal(observe_kubelet(root, KUBELET, "uid-1", "pv-1", &observed), 0);
    return observed;
}

static void a_published_volume_is_there(void **state)
{
    struct observed_kubelet observed;

    (void)state;
    tree_make(PV "/mount");
    tree_write(PV "/vol_data.json", "{}");
    tree_make(PODS "/uid-2");
    observed = look();
    assert_true(observed.pod && observed.leaf && observed.volume_data);
    assert_string_equal(observed.canary, ""); /* is not asked for */
    assert_int_not_equal(observed.device, 0);
}

static void a_path_that_does_not_fit_is_refused(void **state)
{
    static char kubelet[PATH_MAX];
    struct observed_kubelet observed;

    (void)state;
    memset(kubelet, '/', sizeof(kubelet) - 1);
    assert_true(observe_kubelet(root, kubelet, "uid-1", "pv-1", &observed) < 0);
}

static void each_thing_goes_by_itself(void **state)
{
    (void)state;
    tree_make(PV "/mount");
    tree_write(PV "/vol_data.json", "{}");
    tree_make(PODS "/uid-2");
    tree_remove(PV "/mount");
    assert_true(look().pod && !look().leaf && look().volume_data);
    tree_remove(PV "/vol_data.json");
    assert_true(look().pod && !look().leaf && !look().volume_data);
    assert_string_equal(look().canary, "uid-2");
    tree_remove(PV);
    tree_remove(PODS "/uid-1/volumes/kubernetes.io~csi");
    tree_remove(PODS "/uid-1/volumes");
    assert_true(look().pod);
    tree_remove(PODS "/uid-1");
    assert_false(look().pod || look().leaf || look().volume_data);
    assert_string_equal(look().canary, "uid-2");
}

static void without_another_pod_there_is_no_canary(void **state)
{
    (void)state;
    assert_int_equal(look().device, 0); /* no kubelet at all: nothing is known to be absent */
    assert_true(look().pod);
    tree_make(PODS);
    assert_false(look().pod);
    assert_string_equal(look().canary, "");
    tree_write(PODS "/file", "");
    tree_make(PODS "/.hidden");
    assert_int_equal(symlink("/", tree_path(PODS "/link")), 0);
    assert_string_equal(look().canary, "");
    tree_make(PODS "/uid-1"); /* it is no witness for itself */
    assert_string_equal(look().canary, "");
}

static void an_obstructed_path_counts_as_present(void **state)
{
    (void)state;
    tree_make(PODS "/uid-1/volumes/kubernetes.io~csi");
    tree_write(PV, "");
    assert_true(look().leaf && look().volume_data);
    tree_remove(PV);
    assert_int_equal(symlink("nowhere", tree_path(PV)), 0);
    assert_true(look().leaf && look().volume_data);
    tree_remove(PV);
    tree_make(PV);
    assert_int_equal(symlink("nowhere", tree_path(PV "/mount")), 0);
    assert_true(look().leaf && !look().volume_data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_published_volume_is_there, tree_start, tree_stop),
        cmocka_unit_test_setup_teardown(a_path_that_does_not_fit_is_refused, tree_start, tree_stop),
        cmocka_unit_test_setup_teardown(each_thing_goes_by_itself, tree_start, tree_stop),
        cmocka_unit_test_setup_teardown(without_another_pod_there_is_no_canary, tree_start,
                                        tree_stop),
        cmocka_unit_test_setup_teardown(an_obstructed_path_counts_as_present, tree_start,
                                        tree_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
