/*
 * Files as constant data, with gcc and clang alike: ZAP_EMBED_BEGIN("name") ".incbin \"file\"\n" ZAP_EMBED_END inside of
 * __asm__(). The files are looked for where #include looks.
 */
#ifndef ZAP_EMBED_H
#define ZAP_EMBED_H

#if defined(__APPLE__)
#define ZAP_EMBED_BEGIN(name)                                                                                         \
  ".section __TEXT,__const\n.private_extern _" name "\n.globl _" name "\n.p2align 3\n_" name ":\n"
#define ZAP_EMBED_END ".byte 0\n.text\n"
#else
#define ZAP_EMBED_BEGIN(name)                                                                                         \
  ".pushsection .rodata\n.globl " name "\n.hidden " name "\n.balign 8\n" name ":\n"
#define ZAP_EMBED_END ".byte 0\n.popsection\n"
#endif

#endif
