#include "embedded.h"

#include "embed.h"

__asm__(ZAP_EMBED_BEGIN("zap_check_ptx") ".incbin \"check_headers.ptx\"\n" ZAP_EMBED_END);

__asm__(ZAP_EMBED_BEGIN("zap_verify_ptx") ".incbin \"ed25519.ptx\"\n" ZAP_EMBED_END);
