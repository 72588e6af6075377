/* The kernels' text, as the drivers take it: part of the libraries, and ends with a zero byte. */
#ifndef ZAP_EMBEDDED_H
#define ZAP_EMBEDDED_H

/* PTX of check_headers.cuda.c; build.zig makes it. In embedded_ptx.c. */
extern const char zap_check_ptx[];

/* PTX of ed25519.cuda.c, likewise. */
extern const char zap_verify_ptx[];

/* Metal source: metal_prelude.metal, check_headers.h, check_headers.metal, one after the other. In embedded_metal.c. */
extern const char zap_check_metal[];

#endif
