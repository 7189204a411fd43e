/* SPDX-License-Identifier: Apache-2.0 */
/* status_page.h - the files of the status page, which a browser fills over the API. Private to
 * api/.
 *
 * The Makefile makes these texts from api/status.html and the files that it loads.
 */
#pragma once

/* What the browser may load: only crustd's own files and answers. */
#define STATUS_PAGE_POLICY                                                                         \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "                \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

extern const char status_html[], status_css[], status_js[];
