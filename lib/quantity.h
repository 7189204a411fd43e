/* SPDX-License-Identifier: Apache-2.0 */
/* quantity.h - sizes as Kubernetes writes them ("8Gi"), in bytes.
 *
 * The grammar is that of k8s.io/apimachinery/pkg/api/resource, Quantity: digits with a decimal
 * point anywhere, then nothing, a binary suffix (Ki to Ei), a decimal one (n, u, m, k, M, G, T, P,
 * E) or a decimal exponent (e3, E-3). A size is a whole number of bytes: where Kubernetes rounds
 * up, a fraction of a byte is refused here.
 */
#pragma once

#include <errno.h>
#include <stdint.h>

/* Negative; each has the value of the errno that describes it. */
enum quantity_failure {
    QUANTITY_WRONG = -EINVAL,    /* no quantity, or a negative one */
    QUANTITY_FRACTION = -EDOM,   /* no whole number of bytes */
    QUANTITY_TOO_MUCH = -ERANGE, /* more than INT64_MAX, the most that CSI can say */
};

/* 0 or an enum quantity_failure. */
int quantity_parse(const char *text, uint64_t *ret_bytes);

/* The error as words that follow the text itself: "\"8GB\" is …". */
const char *quantity_error(int error);
