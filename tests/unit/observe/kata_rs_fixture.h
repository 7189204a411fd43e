/* SPDX-License-Identifier: Apache-2.0 */
/* kata_rs_fixture.h - a sandbox of runtime-rs on the node of node_fixture.h: its state directory,
 * its bundles, shim and QEMU.
 *
 * The including program defines ID, the sandbox's, which no other program may have: tests run at
 * the same time, and a process belongs to a sandbox by the id in its arguments. */
#pragma once

#include "tests/unit/observe/node_fixture.h"

#define CONTAINER "c0ffee000123456789abcdef0123456789abcdef0123456789abcdef01234567"
#define STATE     "/run/kata/" ID
#define TASKS     "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
#define VOLUME    "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount"

/* Afresh: what was read before is forgotten. */
static inline void observe(void)
{
    observed_sandbox_done(&sandbox);
    paths.cache = observe_cache_free(paths.cache);
    assert_int_equal(observe_cache_new("", &paths.cache), 0);
    assert_int_equal(observe_whole(ID), OBSERVED);
}

/* sandbox_id NULL: without an engine for pods. */
static inline void write_bundle(const char *path, const char *sandbox_id, const char *mounts)
{
    char text[2048], annotations[512] = "", file[512];

    make_directory(path);
    if (sandbox_id)
        (void)snprintf(annotations, sizeof(annotations),
                       "\"io.kubernetes.cri.sandbox-id\":\"%s\","
                       "\"io.kubernetes.cri.sandbox-namespace\":\"default\","
                       "\"io.kubernetes.cri.sandbox-name\":\"web\"",
                       sandbox_id);
    (void)snprintf(text, sizeof(text), "{\"mounts\":[%s],\"annotations\":{%s}}", mounts,
                   annotations);
    (void)snprintf(file, sizeof(file), "%s/config.json", path);
    write_file(file, text);
}

#define MOUNT(source, destination)                                                                 \
    "{\"type\":\"bind\",\"source\":\"" source "\",\"destination\":\"" destination "\"}"

/* What runs once the pod does: the state directory, the bundles, shim and QEMU. */
static inline void start_qemu(const char *tasks)
{
    char bundle[256], container[256];

    (void)snprintf(bundle, sizeof(bundle), "%s/" ID, tasks);
    (void)snprintf(container, sizeof(container), "%s/" CONTAINER, tasks);
    make_directory(STATE);
    write_file(STATE "/state.json", "{\"hypervisor\":{\"hypervisor_type\":\"qemu\",\"pid\":null}}");
    write_bundle(bundle, ID, "");
    write_bundle(container, ID, MOUNT(VOLUME, "/srv/data") "," MOUNT("/etc/hosts", "/etc/hosts"));
    (void)start_process(bundle, "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_process(bundle, "qemu-system-x86_64", "-name", "sandbox-" ID ",debug-threads=on",
                        "vhost-vsock-pci,disable-modern=false,guest-cid=77,id=vsock-77");
}
