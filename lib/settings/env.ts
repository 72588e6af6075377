/** The environment, or what stands for it. */
export type Env = Readonly<Record<string, string | undefined>>;
