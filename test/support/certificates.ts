/** Certificate authorities and certificates, made for one test run and kept in memory alone. */
import "reflect-metadata";
import * as x509 from "@peculiar/x509";
import type { TlsOptions } from "../../lib/wire/index.ts";

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const DAY_MILLIS = 86_400_000;

export interface CertificateFields {
  /** The common name; empty for none. */
  readonly cn?: string;
  readonly dns?: readonly string[];
  readonly uri?: readonly string[];
  /** Days from now; default -1 to 30. */
  readonly from?: number;
  readonly to?: number;
}

let serial = 0;

export class Authority {
  readonly pem: string;
  private readonly certificate: x509.X509Certificate;
  private readonly keys: CryptoKeyPair;

  private constructor(certificate: x509.X509Certificate, keys: CryptoKeyPair) {
    this.certificate = certificate;
    this.keys = keys;
    this.pem = certificate.toString("pem");
  }

  static async make(name = "Test Authority"): Promise<Authority> {
    const keys = await newKeys();
    const certificate = await x509.X509CertificateGenerator.createSelfSigned({
      serialNumber: nextSerial(),
      name: `CN=${name}`,
      notBefore: days(-1),
      notAfter: days(30),
      keys,
      signingAlgorithm: ALGORITHM,
      extensions: [
        new x509.BasicConstraintsExtension(true, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      ],
    });
    return new Authority(certificate, keys);
  }

  /** Certificate and key of one node; `ca` is this authority unless another is given. */
  async issue(fields: CertificateFields, ca: Authority = this): Promise<TlsOptions> {
    const { cn = "", dns = [], uri = [], from = -1, to = 30 } = fields;
    const keys = await newKeys();
    const names: x509.JsonGeneralNames = [
      ...dns.map((value) => ({ type: "dns" as const, value })),
      ...uri.map((value) => ({ type: "url" as const, value })),
    ];
    const certificate = await x509.X509CertificateGenerator.create({
      serialNumber: nextSerial(),
      subject: cn === "" ? [] : [{ CN: [cn] }],
      issuer: this.certificate.subject,
      notBefore: days(from),
      notAfter: days(to),
      publicKey: keys.publicKey,
      signingKey: this.keys.privateKey,
      signingAlgorithm: ALGORITHM,
      extensions: [
        new x509.BasicConstraintsExtension(false),
        ...(names.length > 0 ? [new x509.SubjectAlternativeNameExtension(names)] : []),
      ],
    });
    const key = Buffer.from(await crypto.subtle.exportKey("pkcs8", keys.privateKey)).toString("base64");
    return {
      cert: certificate.toString("pem"),
      key: `-----BEGIN PRIVATE KEY-----\n${key.replaceAll(/.{64}/g, "$&\n")}\n-----END PRIVATE KEY-----\n`,
      ca: ca.pem,
    };
  }
}

async function newKeys(): Promise<CryptoKeyPair> {
  return (await crypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"])) as CryptoKeyPair;
}

function days(count: number): Date {
  return new Date(Date.now() + count * DAY_MILLIS);
}

function nextSerial(): string {
  return (++serial).toString(16).padStart(4, "0");
}
