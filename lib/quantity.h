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

/* ---- numbers -------------------------------------------------------------------------------- */

/* Unsigned numbers with separators between them, as the kernel writes device numbers
 * and addresses ("8:16", "0000:00:02.0").
 *
 * sscanf(3) would bring libc's reading of floating-point numbers along, a tenth of
 * crust-guest-agent, and what it does with a number that is too large is undefined.
 */

/* Reads strlen(separators) + 1 numbers of base 10 or 16: digits alone, no sign, no prefix, at most
 * UINT32_MAX. Character n of separators stands between number n and the next, once; a space stands
 * for one space or more. Returns where the last number ends, so that the caller judges what
 * follows. NULL: text begins otherwise, and some of ret_numbers may have been set. */
const char *numbers_read(const char *text, const char *separators, unsigned base,
                         uint32_t *ret_numbers);
