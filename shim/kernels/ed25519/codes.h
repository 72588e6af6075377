/* What a verification says of an item, and how a batch is laid out. */
#ifndef ZAP_ED25519_CODES_H
#define ZAP_ED25519_CODES_H

/* Codes, as in lib/verify/contract.ts. */
#define ZAP_CODE_SIGNATURE 0          /* not a signature of this message by this key */
#define ZAP_CODE_VALID 1
#define ZAP_CODE_ITEM 2               /* a part lies outside of the batch's bytes */
#define ZAP_CODE_KEY_LENGTH 3         /* the key is not of 32 bytes */
#define ZAP_CODE_MESSAGE_LENGTH 4     /* the message is longer than 2,147,483,647 bytes */
#define ZAP_CODE_SIGNATURE_LENGTH 5   /* the signature is not of 64 bytes */
#define ZAP_CODE_SIGNATURE_ENCODING 7 /* the scalar S is L or more */

/* Six of them for each item: offset and length of the key, of the message, of the signature. */
#define ZAP_TABLE_STRIDE 6

#endif
